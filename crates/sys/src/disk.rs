//! Properties of the disk that a file is on.

use std::fs;
use std::path::Path;

/// Returns whether the disk with this device number is rotational. Such disks are slow at random
/// access.
///
/// `None` if the kernel does not report it, as for filesystems on no disk or on several. Most
/// hypervisors report virtual disks as rotational; these count as not rotational.
#[must_use]
pub fn is_rotational(device: u64) -> Option<bool> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let dir = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has no queue of its own.
    let disk = [Some(dir.as_path()), dir.parent()].into_iter().flatten();
    let rotational = |disk: &Path| fs::read_to_string(disk.join("queue/rotational")).ok();
    let (disk, rotational) = disk.into_iter().find_map(|disk| Some((disk, rotational(disk)?)))?;
    Some(rotational.trim() == "1" && !is_virtual(disk))
}

/// Maximum depth of stacked block devices. (chosen: LVM on encryption on RAID has three levels
/// above the disks)
const MAX_STACKED_DEVICES: u32 = 8;

/// Returns whether a disk is virtual, or consists of virtual disks only.
fn is_virtual(disk: &Path) -> bool {
    is_virtual_stack(disk, MAX_STACKED_DEVICES)
}

fn is_virtual_stack(disk: &Path, depth: u32) -> bool {
    let slaves = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let mut slaves = slaves.map(|slave| slave.path()).peekable();
    if slaves.peek().is_none() {
        return is_named_virtual(disk);
    }
    depth > 0 && slaves.all(|slave| is_virtual_stack(&slave, depth - 1))
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
    fn tmpfs_file_has_no_rotational_flag() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        assert_eq!(is_rotational(stat_file(&file).unwrap().dev), None);
        assert_eq!(
            is_rotational(stat_file(File::open("/proc/self/stat").unwrap()).unwrap().dev),
            None
        );
    }

    #[test]
    fn every_disk_has_rotational_flag() {
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let numbers = fs::read_to_string(entry.path().join("dev")).unwrap();
            let (major, minor) = numbers.trim().split_once(':').unwrap();
            let device = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
            assert!(is_rotational(device).is_some(), "{}", entry.path().display());
        }
    }

    #[test]
    fn virtual_disk_is_detected_through_stack() {
        assert!(
            is_virtual(Path::new("/sys/block/vda")) && is_virtual(Path::new("/sys/block/xvdb"))
        );
        assert!(!is_virtual(Path::new("/sys/block/sda")));
        let dir = tempfile::tempdir().unwrap();
        let joined = dir.path().join("dm-0");
        fs::create_dir_all(joined.join("slaves/vda2")).unwrap();
        assert!(is_virtual(&joined));
        // A device stacked on another, with links as in sysfs.
        let above = dir.path().join("dm-1");
        fs::create_dir_all(above.join("slaves")).unwrap();
        symlink(&joined, above.join("slaves/dm-0")).unwrap();
        assert!(is_virtual(&above));
        fs::create_dir(joined.join("slaves/sdb")).unwrap();
        assert!(!is_virtual(&joined) && !is_virtual(&above));
        // A cycle of devices is not virtual.
        let endless = dir.path().join("dm-2");
        fs::create_dir_all(endless.join("slaves")).unwrap();
        symlink(&endless, endless.join("slaves/dm-2")).unwrap();
        assert!(!is_virtual(&endless));
    }
}
