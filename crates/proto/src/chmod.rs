//! Changes of modes in the notation of chmod(1), as rsync's `--chmod` has it.

/// Permission bits with set-user-ID, set-group-ID and sticky.
const MODE_BITS: u32 = 0o7777;

/// Execute permission of owner, group and others.
const EXECUTE_BITS: u32 = 0o111;

/// Changes of modes, applied in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModeChanges(Vec<Change>);

/// One change: the bits that stay, and those that are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    keep: u32,
    add: u32,
    /// Execute permission is added to directories, and to what has one already.
    adds_search: bool,
    entries: Entries,
}

/// Entries to which a change applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    All,
    Dirs,
    Files,
}

/// Permissions of a clause as it is read.
#[derive(Debug, Clone, Copy, Default)]
struct Clause {
    /// One bit for each of owner (`0o100`), group (`0o10`) and others (1).
    who: u32,
    /// Read, write and execute, as for others.
    permissions: u32,
    /// Set-user-ID and set-group-ID, as far as `who` has them.
    set_id: bool,
    sticky: bool,
    search: bool,
}

impl ModeChanges {
    /// Parses changes that are separated by commas, such as `Dg+s,ug+w,Fo-w,+X` or `D755,F644`.
    ///
    /// A clause without `u`, `g`, `o` or `a` leaves out what `umask` has.
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
        self.0.iter().fold(mode & MODE_BITS, |mode, change| change.apply(mode, is_dir))
    }
}

impl Change {
    fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        match self.entries {
            Entries::Dirs if !is_dir => return mode,
            Entries::Files if is_dir => return mode,
            _ => {}
        }
        // `X` counts by the mode before the change.
        let searches = self.adds_search && (is_dir || mode & EXECUTE_BITS != 0);
        let add = if searches { self.add } else { self.add & !self.search_bits() };
        mode & self.keep | add
    }

    /// Returns the bits that `X` adds alone.
    fn search_bits(&self) -> u32 {
        if self.adds_search { self.add & EXECUTE_BITS } else { 0 }
    }
}

fn parse_clause(clause: &str, umask: u32) -> Result<Change, String> {
    let invalid = || format!("{clause:?} is not a change of modes, such as Dg+s or F644");
    let (entries, rest) = match clause.as_bytes() {
        [b'D', ..] => (Entries::Dirs, &clause[1..]),
        [b'F', ..] => (Entries::Files, &clause[1..]),
        _ => (Entries::All, clause),
    };
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let mode = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= MODE_BITS);
        let add = mode.ok_or_else(invalid)?;
        return Ok(Change { keep: 0, add, adds_search: false, entries });
    }
    let at = rest.find(['+', '-', '=']).ok_or_else(invalid)?;
    let (who, permissions) = (&rest[..at], &rest[at + 1..]);
    let mut read = Clause { who: parse_who(who).ok_or_else(invalid)?, ..Clause::default() };
    parse_permissions(permissions, &mut read).ok_or_else(invalid)?;
    let adds = !rest[at..].starts_with('-');
    // Either kind of `x` alone decides: `X` beside `x` adds nothing.
    let adds_search = read.search && read.permissions & 1 == 0;
    if adds_search {
        read.permissions |= 1;
    }
    let bits = read.bits(umask);
    let keep = match rest.as_bytes()[at] {
        b'+' => MODE_BITS,
        b'-' => MODE_BITS & !bits,
        _ => MODE_BITS & !read.all_bits(),
    };
    Ok(Change { keep, add: if adds { bits } else { 0 }, adds_search: adds && adds_search, entries })
}

fn parse_who(text: &str) -> Option<u32> {
    text.bytes().try_fold(0, |who, letter| {
        let bits = match letter {
            b'u' => 0o100,
            b'g' => 0o10,
            b'o' => 1,
            b'a' => 0o111,
            _ => return None,
        };
        Some(who | bits)
    })
}

fn parse_permissions(text: &str, clause: &mut Clause) -> Option<()> {
    for letter in text.bytes() {
        match letter {
            b'r' => clause.permissions |= 4,
            b'w' => clause.permissions |= 2,
            b'x' => clause.permissions |= 1,
            b'X' => clause.search = true,
            b's' => clause.set_id = true,
            b't' => clause.sticky = true,
            _ => return None,
        }
    }
    Some(())
}

impl Clause {
    /// Returns the bits that the clause names.
    fn bits(&self, umask: u32) -> u32 {
        let permissions = match self.who {
            0 => (0o111 * self.permissions) & !umask,
            who => who * self.permissions,
        };
        permissions | self.top_bits()
    }

    fn top_bits(&self) -> u32 {
        let set_id = match self.who {
            0 => 0o6000,
            who => (who & 0o100) << 5 | (who & 0o10) << 7,
        };
        (if self.set_id { set_id } else { 0 }) | (if self.sticky { 0o1000 } else { 0 })
    }

    /// Returns all bits of those whom the clause concerns.
    fn all_bits(&self) -> u32 {
        if self.who == 0 { 0o777 | self.top_bits() } else { (self.who * 7) | self.top_bits() }
    }
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
        ] {
            let shown = changed(text, mode, is_dir);
            assert_eq!(shown, wanted, "{text} {mode:o} {is_dir}: {shown:o}");
        }
    }

    #[test]
    fn malformed_clauses_are_named() {
        for text in ["", "u", "u+q", "8", "77777", "+w,", "DF644", "z+r"] {
            assert!(ModeChanges::parse(text, 0).is_err(), "{text}");
        }
        assert!(ModeChanges::parse("u+w,q+r", 0).unwrap_err().contains("\"q+r\""));
    }
}
