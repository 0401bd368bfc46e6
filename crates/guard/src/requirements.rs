//! Requirements of the guard to the host: rights, BTF, and a BPF file system.

use crate::error::Error;
use rustix::thread::CapabilitySet;
use std::fs;
use std::path::Path;

/// Type information of the running kernel, by which fields are found.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// File system that keeps BPF objects alive.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";

/// Offsets of the clocks of this process from those of the kernel.
const CLOCK_OFFSETS: &str = "/proc/self/timens_offsets";

/// First kernel that clamps windows of established connections. (`tcp_set_window_clamp`)
const MIN_KERNEL: (u32, u32) = (5, 15);

/// First kernel with links of programs to interfaces. (tcx)
const MIN_GUEST_KERNEL: (u32, u32) = (6, 6);

/// Checks that the guard can run on this host, and follow guests behind these interfaces.
///
/// # Errors
///
/// The first requirement that is missing, and its remedy.
pub(crate) fn check(guests: &[String]) -> Result<(), Error> {
    let version = bankfull_sys::kernel_version();
    if let Some(version) = version.filter(|&version| version < MIN_KERNEL) {
        return Err(Error::new(format!(
            "Linux {}.{} cannot change windows of running connections, Linux {}.{} can: use \
             bankfull gather, whose senders wait for grants",
            version.0, version.1, MIN_KERNEL.0, MIN_KERNEL.1
        )));
    }
    if let (Some(version), Some(interface)) = (version, guests.first())
        && version < MIN_GUEST_KERNEL
    {
        return Err(Error::new(format!(
            "Linux {}.{} cannot follow the guests of {interface}, Linux {}.{} can: without --guest, \
             the programs of this host are guarded",
            version.0, version.1, MIN_GUEST_KERNEL.0, MIN_GUEST_KERNEL.1
        )));
    }
    check_rights()?;
    if !Path::new(KERNEL_BTF).exists() {
        return Err(Error::new(format!(
            "this kernel has no type information ({KERNEL_BTF}): run one with \
             CONFIG_DEBUG_INFO_BTF, or use bankfull gather, which needs none"
        )));
    }
    if has_own_clock(&fs::read_to_string(CLOCK_OFFSETS).unwrap_or_default()) {
        return Err(Error::new(
            "the clock of this process is not that of the kernel (time namespace), whose programs \
             could not tell whether the guard lives: run it outside of the container",
        ));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if !has_bpf_file_system(&mounts) {
        return Err(Error::new(format!(
            "no BPF file system is mounted: mount -t bpf -o mode=0700 bpf {BPF_FILE_SYSTEM}"
        )));
    }
    Ok(())
}

/// True if a list of mounts has the BPF file system at its usual place.
fn has_bpf_file_system(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(BPF_FILE_SYSTEM) && words.next() == Some("bpf")
    })
}

/// True if a list of clock offsets shifts the monotonic clock, that of the heartbeat.
fn has_own_clock(offsets: &str) -> bool {
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("monotonic") && words.any(|offset| offset != "0")
    })
}

/// Checks the capabilities of this process.
fn check_rights() -> Result<(), Error> {
    let sets = rustix::thread::capabilities(None)
        .map_err(|error| Error::of("read the capabilities of this process", error))?;
    let missing = missing_rights(sets.effective);
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("{} missing: run as root, or grant it", missing.join(" and "))))
}

/// Returns the names of the capabilities that a set lacks.
fn missing_rights(effective: CapabilitySet) -> Vec<&'static str> {
    // CAP_SYS_ADMIN includes the two that were split off from it.
    let is_admin = effective.contains(CapabilitySet::SYS_ADMIN);
    let needed = [
        ("CAP_BPF", CapabilitySet::BPF, is_admin),
        ("CAP_PERFMON", CapabilitySet::PERFMON, is_admin),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, false),
    ];
    let lacks = needed.into_iter().filter(|(_, right, has)| !has && !effective.contains(*right));
    lacks.map(|(name, ..)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let all = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
        assert!(missing_rights(all).is_empty());
        assert!(missing_rights(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN).is_empty());
        assert_eq!(missing_rights(CapabilitySet::SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_rights(CapabilitySet::BPF), ["CAP_PERFMON", "CAP_NET_ADMIN"]);
    }

    #[test]
    fn offset_of_the_monotonic_clock_is_found() {
        assert!(!has_own_clock(
            "monotonic           0         0\nboottime            7         0\n"
        ));
        assert!(has_own_clock(
            "monotonic         100         0\nboottime            0         0\n"
        ));
        assert!(has_own_clock("monotonic           0 500000000\n"));
        assert!(!has_own_clock(""), "kernels before 5.6");
    }

    #[test]
    fn bpf_file_system_counts_at_its_place_only() {
        assert!(has_bpf_file_system("bpf /sys/fs/bpf bpf rw 0 0\n"));
        assert!(!has_bpf_file_system("bpf /mnt bpf rw 0 0\ntmpfs /sys/fs/bpf tmpfs rw 0 0\n"));
    }
}
