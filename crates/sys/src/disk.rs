//! What the kernel knows of the disk that a file is on.

use std::fs;
use std::path::Path;

/// Whether the disk of files with this device number rotates, so that it is quick only where it
/// reads and writes one thing after the other; `None` where the kernel does not tell, as of file
/// systems that are on no disk, or on several. Of disks of virtual machines most hypervisors say
/// that they rotate, which they do not.
#[must_use]
pub fn rotates(device: u64) -> Option<bool> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let dir = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has no queue of its own.
    let disk = [Some(dir.as_path()), dir.parent()].into_iter().flatten();
    let told = |disk: &Path| fs::read_to_string(disk.join("queue/rotational")).ok();
    let (disk, told) = disk.into_iter().find_map(|disk| Some((disk, told(disk)?)))?;
    Some(told.trim() == "1" && !is_virtual(disk))
}

/// Disks that are made of disks are followed so far down. (ours: LVM on encryption on RAID has
/// three above the disks)
const DEPTH_MAX: u32 = 8;

/// Whether a disk is what a hypervisor has in the place of one, or made of such alone.
fn is_virtual(disk: &Path) -> bool {
    is_virtual_down(disk, DEPTH_MAX)
}

fn is_virtual_down(disk: &Path, depth: u32) -> bool {
    let slaves = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let mut slaves = slaves.map(|slave| slave.path()).peekable();
    if slaves.peek().is_none() {
        return is_named_virtual(disk);
    }
    depth > 0 && slaves.all(|slave| is_virtual_down(&slave, depth - 1))
}

fn is_named_virtual(disk: &Path) -> bool {
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("vd") || name.starts_with("xvd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat_file;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_in_memory_are_on_no_disk() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        assert_eq!(rotates(stat_file(&file).unwrap().dev), None);
        assert_eq!(rotates(stat_file(File::open("/proc/self/stat").unwrap()).unwrap().dev), None);
    }

    #[test]
    fn every_disk_is_told_of_by_its_parts_too() {
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let numbers = fs::read_to_string(entry.path().join("dev")).unwrap();
            let (major, minor) = numbers.trim().split_once(':').unwrap();
            let device = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
            assert!(rotates(device).is_some(), "{}", entry.path().display());
        }
    }

    #[test]
    fn disks_of_virtual_machines_are_known_by_their_names() {
        assert!(
            is_virtual(Path::new("/sys/block/vda")) && is_virtual(Path::new("/sys/block/xvdb"))
        );
        assert!(!is_virtual(Path::new("/sys/block/sda")));
        let dir = tempfile::tempdir().unwrap();
        let joined = dir.path().join("dm-0");
        fs::create_dir_all(joined.join("slaves/vda2")).unwrap();
        assert!(is_virtual(&joined));
        // One on another, as links show it.
        let above = dir.path().join("dm-1");
        fs::create_dir_all(above.join("slaves")).unwrap();
        symlink(&joined, above.join("slaves/dm-0")).unwrap();
        assert!(is_virtual(&above));
        fs::create_dir(joined.join("slaves/sdb")).unwrap();
        assert!(!is_virtual(&joined) && !is_virtual(&above));
        // What never ends is nothing that is known.
        let endless = dir.path().join("dm-2");
        fs::create_dir_all(endless.join("slaves")).unwrap();
        symlink(&endless, endless.join("slaves/dm-2")).unwrap();
        assert!(!is_virtual(&endless));
    }
}
