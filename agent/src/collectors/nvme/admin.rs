//! Log page command of an NVMe disk's driver; the one command that is sent only reads.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::page::PAGE_BYTES;

/// Opcode of `Get Log Page` in the NVM Express base specification.
const GET_LOG_PAGE: u8 = 0x02;
/// Log page with the health of the controller.
const HEALTH: u32 = 0x02;
/// All namespaces, because the page is the controller's.
const ALL: u32 = u32::MAX;
/// Time after which the driver aborts the command, milliseconds.
const DEADLINE_MS: u32 = 5_000;

/// Layout of `struct nvme_admin_cmd` in `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// Request `NVME_IOCTL_ADMIN_CMD`: read and write, the size of the command, `N`, 0x41.
const ADMIN: u64 = 3 << 30 | (size_of::<AdminCommand>() as u64) << 16 | 0x4e << 8 | 0x41;

/// Reads the health page of the controller behind a device file such as `/dev/nvme0`. Requires CAP_SYS_ADMIN.
pub(super) fn health(device: &Path) -> io::Result<[u8; PAGE_BYTES]> {
    let file = File::open(device)?;
    let mut page = [0_u8; PAGE_BYTES];
    let words = u32::try_from(PAGE_BYTES / 4).unwrap_or(0);
    let mut command = AdminCommand {
        opcode: GET_LOG_PAGE,
        namespace: ALL,
        address: page.as_mut_ptr().expose_provenance() as u64,
        data_bytes: words * 4,
        // Number of words less one, above the number of the page.
        words_10_15: [(words - 1) << 16 | HEALTH, 0, 0, 0, 0, 0],
        timeout_ms: DEADLINE_MS,
        ..AdminCommand::default()
    };
    // SAFETY: the command has the layout of the kernel's own; the kernel writes at most `data_bytes` to `address`,
    // where that many are allocated, and both live until the call returns.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN as _, &raw mut command) };
    match status {
        0 => Ok(page),
        -1 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("the disk refuses with status {status:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the number of the kernel's header, and tries files that are not disks.
    #[test]
    fn the_command_is_the_kernels_and_what_is_no_disk_refuses_it() {
        assert_eq!((size_of::<AdminCommand>(), ADMIN), (72, 0xc048_4e41));
        assert!(health(Path::new("/dev/null")).is_err());
        assert!(health(Path::new("/nowhere/at/all")).is_err());
    }
}
