//! Changes of modes in the notation of chmod(1), as rsync's `--chmod` has it.

/// Permission bits with set-user-ID, set-group-ID and sticky.
const MODE_BITS: u32 = 0o7777;

/// Execute permission of owner, group and others.
const EXECUTE_BITS: u32 = 0o111;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// Changes of modes, applied in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModeChanges(Vec<Change>);

/// One change, and the entries to which it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    entries: Entries,
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Bits that stay, and those that are added.
    Set {
        keep: u32,
        add: u32,
        /// True for `X`: execute permission is added only to directories, and to entries that had
        /// it before all changes.
        adds_search: bool,
    },
    /// Permissions of owner, group or others, which are given to the classes of `who`.
    Copy {
        /// Place of the permissions that are copied.
        shift: u32,
        operator: u8,
        /// One bit for each of owner (`0o100`), group (`0o10`) and others (1).
        who: u32,
        /// Bits that are not copied.
        masked: u32,
    },
}

/// Entries to which a change applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    All,
    Dirs,
    Files,
}

/// Letters before the operator of a clause.
#[derive(Debug, Clone, Copy, Default)]
struct Classes {
    /// One bit for each of owner (`0o100`), group (`0o10`) and others (1).
    who: u32,
    /// Set-user-ID and set-group-ID of these.
    set_id: u32,
    dirs: bool,
    files: bool,
}

/// Letters after the operator of a clause.
#[derive(Debug, Clone, Copy, Default)]
struct Permissions {
    /// Read, write and execute, as for others.
    bits: u32,
    /// Set-user-ID, set-group-ID and sticky.
    top: u32,
    search: bool,
    /// Place of permissions that are copied.
    copied: Option<u32>,
}

impl ModeChanges {
    /// Parses changes that are separated by commas, such as `Dg+s,ug+w,Fo-w,+X` or `D755,F644`.
    ///
    /// A clause without `u`, `g`, `o` or `a` skips the permissions that `umask` masks.
    ///
    /// # Errors
    /// The clause that cannot be parsed.
    pub fn parse(text: &str, umask: u32) -> Result<Self, String> {
        text.split(',')
            .map(|clause| parse_clause(clause, umask))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// True if modes stay as they are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the changes, and then those of `others`.
    #[must_use]
    pub fn then(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Returns the changed mode of a directory or of another entry.
    #[must_use]
    pub fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        let mode = mode & MODE_BITS;
        // `X` counts by the mode before all changes.
        let has_execute = is_dir || mode & EXECUTE_BITS != 0;
        let fits = |change: &&Change| match change.entries {
            Entries::All => true,
            Entries::Dirs => is_dir,
            Entries::Files => !is_dir,
        };
        let changes = self.0.iter().filter(fits);
        changes.fold(mode, |mode, change| change.action.apply(mode, has_execute))
    }
}

impl Action {
    fn apply(self, mode: u32, has_execute: bool) -> u32 {
        match self {
            Self::Set { keep, add, adds_search } => {
                let add = if adds_search && !has_execute { add & !EXECUTE_BITS } else { add };
                mode & keep | add
            }
            Self::Copy { shift, operator, who, masked } => {
                let bits = (who * (mode >> shift & 7)) & !masked;
                match operator {
                    b'+' => mode | bits,
                    b'-' => mode & !bits,
                    _ => mode & !(who * 7) & !top_bits_of(who) | bits,
                }
            }
        }
    }
}

/// Returns the set-user-ID, set-group-ID and sticky bits that belong to classes.
fn top_bits_of(who: u32) -> u32 {
    let bit = |class, bit| if who & class != 0 { bit } else { 0 };
    bit(0o100, SET_USER_ID) | bit(0o10, SET_GROUP_ID) | bit(1, STICKY)
}

fn parse_clause(clause: &str, umask: u32) -> Result<Change, String> {
    let invalid = || format!("{clause:?} is not a change of modes, such as Dg+s or F644");
    let letters = clause.find(|c: char| !"DFugoa".contains(c)).unwrap_or(clause.len());
    let (classes, rest) = (parse_classes(&clause[..letters]), &clause[letters..]);
    let entries = match (classes.dirs, classes.files) {
        (false, false) => Entries::All,
        (true, false) => Entries::Dirs,
        (false, true) => Entries::Files,
        (true, true) => return Err(invalid()),
    };
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let mode = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= MODE_BITS);
        let add = mode.filter(|_| classes.who == 0).ok_or_else(invalid)?;
        let action = Action::Set { keep: 0, add, adds_search: false };
        return Ok(Change { entries, action });
    }
    let operator = *rest.as_bytes().first().filter(|b| b"+-=".contains(b)).ok_or_else(invalid)?;
    let read = parse_permissions(&rest[1..], classes).ok_or_else(invalid)?;
    // Without a class, all are changed but for what the umask has.
    let (who, masked) = if classes.who == 0 { (0o111, umask) } else { (classes.who, 0) };
    if let Some(shift) = read.copied {
        return Ok(Change { entries, action: Action::Copy { shift, operator, who, masked } });
    }
    let bits = (who * read.bits) & !masked | read.top;
    let (keep, add) = match operator {
        b'+' => (MODE_BITS, bits),
        b'-' => (MODE_BITS & !bits, 0),
        _ => {
            let set_id = if read.top == 0 { 0 } else { classes.set_id };
            (MODE_BITS & !(who * 7) & !set_id, bits)
        }
    };
    Ok(Change { entries, action: Action::Set { keep, add, adds_search: read.search } })
}

/// Parses the letters before an operator.
fn parse_classes(text: &str) -> Classes {
    let mut classes = Classes::default();
    for letter in text.bytes() {
        let (who, set_id) = match letter {
            b'D' => {
                classes.dirs = true;
                continue;
            }
            b'F' => {
                classes.files = true;
                continue;
            }
            b'u' => (0o100, SET_USER_ID),
            b'g' => (0o10, SET_GROUP_ID),
            b'o' => (1, 0),
            _ => (0o111, SET_USER_ID | SET_GROUP_ID),
        };
        classes.who |= who;
        classes.set_id |= set_id;
    }
    classes
}

/// Parses the letters after an operator; `None` if one of them is unknown.
fn parse_permissions(text: &str, classes: Classes) -> Option<Permissions> {
    let mut read = Permissions::default();
    for letter in text.bytes() {
        match letter {
            b'r' => read.bits |= 4,
            b'w' => read.bits |= 2,
            b'x' => read.bits |= 1,
            b'X' => (read.bits, read.search) = (read.bits | 1, true),
            // As in rsync: without owner and group it stands for set-user-ID alone.
            b's' if classes.set_id == 0 => read.top = SET_USER_ID,
            b's' => read.top |= classes.set_id,
            b't' => read.top |= STICKY,
            b'u' | b'g' | b'o' if text.len() == 1 => {
                read.copied = Some(match letter {
                    b'u' => 6,
                    b'g' => 3,
                    _ => 0,
                });
            }
            _ => return None,
        }
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, mode: u32, is_dir: bool) -> u32 {
        ModeChanges::parse(text, 0o022).unwrap().apply(mode, is_dir)
    }

    #[test]
    fn clauses_change_the_modes_of_their_entries() {
        for (text, mode, is_dir, wanted) in [
            ("Dg+s,ug+w,Fo-w,+X", 0o644, false, 0o664),
            ("Dg+s,ug+w,Fo-w,+X", 0o755, true, 0o2775),
            ("Dg+s,ug+w,Fo-w,+X", 0o742, false, 0o771 & !0o2 | 0o760),
            ("D755,F644", 0o4711, false, 0o644),
            ("D755,F644", 0o700, true, 0o755),
            ("o=", 0o777, false, 0o770),
            ("a=rX", 0o600, false, 0o444),
            ("a=rX", 0o700, true, 0o555),
            ("u+s", 0o755, false, 0o4755),
            ("g-s", 0o2755, true, 0o755),
            ("+t", 0o777, true, 0o1777),
            ("+w", 0o444, false, 0o644),
            ("go-rwx", 0o755, true, 0o700),
            ("u=g", 0o7526, false, 0o3226),
            ("g+o", 0o7526, false, 0o7566),
            ("go-u", 0o7526, false, 0o7522),
            ("o=u", 0o7526, false, 0o6525),
            ("Dg=u", 0o7315, true, 0o5335),
            ("=g", 0o1262, false, 0o644),
            ("uD+w", 0o555, true, 0o755),
            ("o+s", 0o755, false, 0o4755),
            ("-s", 0o6755, true, 0o2755),
            ("u+rwxXst", 0o044, false, 0o5644),
            ("+Xts", 0o021, true, 0o4131),
        ] {
            let shown = changed(text, mode, is_dir);
            assert_eq!(shown, wanted, "{text} {mode:o} {is_dir}: {shown:o}");
        }
    }

    #[test]
    fn malformed_clauses_are_named() {
        for text in ["", "u", "u+q", "8", "77777", "+w,", "DF644", "z+r", "u755", "u=gw", "g"] {
            assert!(ModeChanges::parse(text, 0).is_err(), "{text}");
        }
        assert!(ModeChanges::parse("u+w,q+r", 0).unwrap_err().contains("\"q+r\""));
    }
}
