//! Flags for the metadata that is kept.

use bankfull::{Error, ErrorKind, Metadata, MetadataKind};
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Metadata that the flags select.
#[derive(Debug, Default, Clone)]
pub(crate) struct MetadataFlags {
    /// Kinds to keep or drop, in the order of the command line.
    kinds: Vec<(MetadataKind, bool)>,
    /// Changes of modes, in order.
    chmod: Vec<String>,
    chown: Option<String>,
    usermap: Option<String>,
    groupmap: Option<String>,
}

/// The flags as clap sees them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata (as in rsync)")]
struct KeepFlags {
    /// Keep symlinks, modes, times, owners, groups, devices and special files
    ///
    /// As -rlptgoD: owners and devices need root at the receiver, and a daemon's permission.
    /// Default: symlinks, modes and modification times.
    #[arg(short, long, action = ArgAction::Count)]
    archive: u8,

    /// Keep modes: the default; --no-perms leaves those of existing files
    #[arg(short, long, action = ArgAction::Count)]
    perms: u8,

    /// Keep modification times: the default
    #[arg(short, long, action = ArgAction::Count)]
    times: u8,

    /// Keep symlinks: the default
    #[arg(short, long, action = ArgAction::Count)]
    links: u8,

    /// Keep owners, by name
    ///
    /// The receiver must be root. Default: files belong to the receiving user.
    #[arg(long, action = ArgAction::Count)]
    owner: u8,

    /// Keep groups, by name
    ///
    /// The receiver must be a member of the group, or root.
    #[arg(short, long, action = ArgAction::Count)]
    group: u8,

    /// Keep devices and special files: --devices --specials
    #[arg(short = 'D', action = ArgAction::Count)]
    devices_and_specials: u8,

    /// Keep character and block devices
    ///
    /// The receiver must be root. Default: they are skipped.
    #[arg(long, action = ArgAction::Count)]
    devices: u8,

    /// Keep FIFOs and sockets
    ///
    /// Default: they are skipped.
    #[arg(long, action = ArgAction::Count)]
    specials: u8,

    /// Keep hard links among the copied files
    ///
    /// Default: each name becomes a file of its own.
    #[arg(short = 'H', long, action = ArgAction::Count)]
    hard_links: u8,

    /// Keep POSIX access control lists
    #[arg(short = 'A', long, action = ArgAction::Count)]
    acls: u8,

    /// Keep extended attributes
    ///
    /// Covers the namespace user, or all namespaces except system if both sides run as root.
    #[arg(short = 'X', long, action = ArgAction::Count)]
    xattrs: u8,

    /// Keep access times, except those of directories
    #[arg(short = 'U', long, action = ArgAction::Count)]
    atimes: u8,

    /// Leave access times at the source as they are, where that is permitted
    #[arg(long, action = ArgAction::Count)]
    open_noatime: u8,

    /// Leave modification times of directories out
    #[arg(short = 'O', long, action = ArgAction::Count)]
    omit_dir_times: u8,
}

/// Flags with values, and those that drop what another keeps.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata (as in rsync)")]
struct ChangeFlags {
    /// Keep owners and groups by number instead of name
    #[arg(long, action = ArgAction::Count)]
    numeric_ids: u8,

    /// Set owner and group of all entries, as USER, USER:GROUP or :GROUP
    #[arg(long, value_name = "USER:GROUP", conflicts_with_all = ["usermap", "groupmap"])]
    chown: Option<String>,

    /// Replace owners, such as alice:bob,1000-1999:www,*:guest
    ///
    /// The first rule that matches decides. A name may have wildcards; an empty one stands for
    /// owners without a name.
    #[arg(long, value_name = "RULES")]
    usermap: Option<String>,

    /// Replace groups, as --usermap does owners
    #[arg(long, value_name = "RULES")]
    groupmap: Option<String>,

    /// Change modes, such as Dg+s,ug+w,Fo-w or D755,F644
    ///
    /// As in chmod(1); D limits a change to directories, F to files. May be repeated.
    #[arg(long, value_name = "CHANGES", action = ArgAction::Append)]
    chmod: Vec<String>,

    /// Drop what an earlier flag keeps: modes
    #[arg(long, alias = "no-p", action = ArgAction::Count)]
    no_perms: u8,

    /// Drop modification times: files that are copied later count as changed
    #[arg(long, alias = "no-t", action = ArgAction::Count)]
    no_times: u8,

    /// Skip symlinks
    #[arg(long, alias = "no-l", action = ArgAction::Count)]
    no_links: u8,

    /// Drop owners, as in -a --no-owner
    #[arg(long, alias = "no-o", action = ArgAction::Count)]
    no_owner: u8,

    /// Drop groups
    #[arg(long, alias = "no-g", action = ArgAction::Count)]
    no_group: u8,

    /// Drop devices
    #[arg(long, action = ArgAction::Count)]
    no_devices: u8,

    /// Drop FIFOs and sockets
    #[arg(long, action = ArgAction::Count)]
    no_specials: u8,

    /// Drop devices and special files
    #[arg(long = "no-D", action = ArgAction::Count)]
    no_devices_and_specials: u8,
}

/// Kinds that a flag keeps or drops.
type Effect = (&'static [MetadataKind], bool);

/// Effects of the flags by their identifiers.
const EFFECTS: [(&str, Effect); 24] = {
    use MetadataKind as Kind;
    const ARCHIVE: &[Kind] = &[
        Kind::Symlinks,
        Kind::Modes,
        Kind::Times,
        Kind::Owner,
        Kind::Group,
        Kind::Devices,
        Kind::Specials,
    ];
    const SPECIAL: &[Kind] = &[Kind::Devices, Kind::Specials];
    [
        ("archive", (ARCHIVE, true)),
        ("perms", (&[Kind::Modes], true)),
        ("times", (&[Kind::Times], true)),
        ("links", (&[Kind::Symlinks], true)),
        ("owner", (&[Kind::Owner], true)),
        ("group", (&[Kind::Group], true)),
        ("devices_and_specials", (SPECIAL, true)),
        ("devices", (&[Kind::Devices], true)),
        ("specials", (&[Kind::Specials], true)),
        ("hard_links", (&[Kind::HardLinks], true)),
        ("acls", (&[Kind::Acls, Kind::Modes], true)),
        ("xattrs", (&[Kind::Xattrs], true)),
        ("atimes", (&[Kind::AccessTimes], true)),
        ("open_noatime", (&[Kind::SourceAccessTimes], true)),
        ("omit_dir_times", (&[Kind::DirTimes], false)),
        ("numeric_ids", (&[Kind::AccountNames], false)),
        ("no_perms", (&[Kind::Modes], false)),
        ("no_times", (&[Kind::Times], false)),
        ("no_links", (&[Kind::Symlinks], false)),
        ("no_owner", (&[Kind::Owner], false)),
        ("no_group", (&[Kind::Group], false)),
        ("no_devices", (&[Kind::Devices], false)),
        ("no_specials", (&[Kind::Specials], false)),
        ("no_devices_and_specials", (SPECIAL, false)),
    ]
};

impl MetadataFlags {
    /// Returns what the flags select.
    ///
    /// # Errors
    /// Names the flag whose value cannot be parsed.
    pub(crate) fn metadata(&self) -> Result<Metadata, Error> {
        let usage =
            |flag: &str, text: String| Error::new(ErrorKind::Usage, format!("{flag}: {text}"));
        let mut metadata = Metadata::default();
        for changes in &self.chmod {
            metadata = metadata.chmod(changes).map_err(|text| usage("--chmod", text))?;
        }
        if let Some(chown) = &self.chown {
            metadata = metadata.chown(chown).map_err(|text| usage("--chown", text))?;
        }
        if let Some(rules) = &self.usermap {
            metadata = metadata.user_map(rules).map_err(|text| usage("--usermap", text))?;
        }
        if let Some(rules) = &self.groupmap {
            metadata = metadata.group_map(rules).map_err(|text| usage("--groupmap", text))?;
        }
        // These maps keep accounts, which a later flag may drop.
        for (kind, keep) in &self.kinds {
            metadata = metadata.keep(*kind, *keep);
        }
        Ok(metadata)
    }

    /// True if hard links are kept.
    pub(crate) fn keeps_hard_links(&self) -> bool {
        self.kinds.contains(&(MetadataKind::HardLinks, true))
    }
}

impl FromArgMatches for MetadataFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for (id, effect) in EFFECTS {
            // The last one decides, so that -a may come before or after what it overrides.
            let is_given = matches.get_count(id) > 0;
            let last = matches.indices_of(id).and_then(Iterator::last).filter(|_| is_given);
            given.extend(last.map(|position| (position, effect)));
        }
        let one = |id: &str| matches.get_one::<String>(id).cloned();
        let chown = one("chown").unwrap_or_default();
        let (user, group) = chown.split_once(':').unwrap_or((&chown, ""));
        for (id, kinds, is_kept) in [
            ("usermap", &[MetadataKind::Owner], true),
            ("groupmap", &[MetadataKind::Group], true),
            ("chown", &[MetadataKind::Owner], !user.is_empty()),
            ("chown", &[MetadataKind::Group], !group.is_empty()),
        ] {
            let last = matches.indices_of(id).and_then(Iterator::last).filter(|_| is_kept);
            given.extend(last.map(|position| (position, (&kinds[..], true))));
        }
        given.sort_by_key(|(position, _)| *position);
        let kinds = given
            .into_iter()
            .flat_map(|(_, (kinds, keep))| kinds.iter().map(move |kind| (*kind, keep)));
        Ok(Self {
            kinds: kinds.collect(),
            chmod: matches.get_many("chmod").into_iter().flatten().cloned().collect(),
            chown: one("chown"),
            usermap: one("usermap"),
            groupmap: one("groupmap"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for MetadataFlags {
    fn augment_args(command: Command) -> Command {
        ChangeFlags::augment_args(KeepFlags::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command as Subcommand;
    use super::super::tests::parse;

    fn selected(flags: &[&str]) -> String {
        let all: Vec<&str> = ["cp"].into_iter().chain(flags.iter().copied()).collect();
        let Ok(Subcommand::Cp(flags)) = parse(&[&all[..], &["a", "b"]].concat()) else {
            panic!("{flags:?}")
        };
        format!("{:?}", flags.metadata.metadata().map_err(|error| error.to_string()))
    }

    #[test]
    fn order_decides_between_flags_that_keep_and_drop() {
        assert_eq!(selected(&["-a", "--no-owner", "--no-g", "--no-D"]), selected(&[]));
        assert_eq!(selected(&["--no-owner", "-a"]), selected(&["-a"]));
        assert_eq!(selected(&["-D"]), selected(&["--devices", "--specials"]));
        assert_eq!(selected(&["-aHAX"]), selected(&["-a", "--hard-links", "--acls", "--xattrs"]));
        assert_ne!(selected(&["-a"]), selected(&[]));
        assert_eq!(selected(&["-pt"]), selected(&[]));
        let rules = |flags: &[&str]| selected(flags).split(", changes").next().map(str::to_owned);
        assert_eq!(rules(&["--chown", "a:b", "--no-group"]), rules(&["--owner"]));
        assert_eq!(rules(&["--no-group", "--chown", "a:b"]), rules(&["--owner", "--group"]));
        assert_eq!(rules(&["--no-owner", "--chown", ":b"]), rules(&["--group"]));
        assert_eq!(rules(&["--usermap", "a:b", "--no-owner"]), rules(&[]));
        assert_eq!(rules(&["--groupmap", "a:b"]), rules(&["--group"]));
    }

    #[test]
    fn values_that_cannot_be_parsed_are_named() {
        for (flags, part) in [
            (["--chmod", "u+q"], "--chmod: \\\"u+q\\\""),
            (["--chown", ":"], "--chown"),
            (["--usermap", "a"], "--usermap: \\\"a\\\""),
            (["--groupmap", "a:99999999999"], "--groupmap"),
        ] {
            let shown = selected(&flags);
            assert!(shown.starts_with("Err") && shown.contains(part), "{shown}");
        }
    }
}
