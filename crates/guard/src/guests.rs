//! Interfaces behind which guests are; those that return are followed again.

use crate::error::Error;
use crate::port::interface_index;
use crate::programs::Programs;

/// Interfaces of guests.
#[derive(Debug)]
pub(crate) struct Guests {
    interfaces: Vec<Interface>,
}

#[derive(Debug)]
struct Interface {
    name: String,
    /// Index of the one that is followed; `None` while there is none.
    index: Option<u32>,
}

impl Guests {
    /// Follows the guests behind interfaces.
    pub(crate) fn follow(names: &[String], programs: &mut Programs) -> Result<Self, Error> {
        let mut interfaces = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let index = interface_index(name);
            programs.attach_guests(name, at)?;
            interfaces.push(Interface { name: name.clone(), index });
        }
        Ok(Self { interfaces })
    }

    /// Follows interfaces that have returned, as that of a virtual machine that starts again.
    ///
    /// Returns those that are gone (false) or followed again (true).
    pub(crate) fn update(&mut self, programs: &mut Programs) -> Vec<(String, bool)> {
        let mut changes = Vec::new();
        for (at, interface) in self.interfaces.iter_mut().enumerate() {
            let index = interface_index(&interface.name);
            let is_other = index != interface.index;
            // One that cannot be followed yet is tried again.
            let name = &interface.name;
            if is_other && (index.is_none() || programs.attach_guests(name, at).is_ok()) {
                interface.index = index;
                changes.push((interface.name.clone(), index.is_some()));
            }
        }
        changes
    }
}
