//! Driver statistics of a network interface beyond those of sysfs: the data of `ethtool -S`, read by ioctl without a
//! child process.
//!
//! The names are the driver's own and are read once an interface. Absent: interfaces of other network namespaces.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Command: number of strings in a set (ETHTOOL_GSSET_INFO of linux/ethtool.h).
const GSSET_INFO: u32 = 0x37;
/// Command: strings of a set (ETHTOOL_GSTRINGS).
const GSTRINGS: u32 = 0x1b;
/// Command: statistics (ETHTOOL_GSTATS).
const GSTATS: u32 = 0x1d;
/// String set of the statistics' names (ETH_SS_STATS).
const STATS: u32 = 1;
/// Length of a name, bytes (ETH_GSTRING_LEN).
const NAME: usize = 32;
/// Most statistics of an interface; a large adapter with all its rings has a few thousand.
const MOST: usize = 65_536;

/// Reader of driver statistics.
#[derive(Debug)]
pub(super) struct EthtoolReader {
    socket: OwnedFd,
    /// Names by interface; empty if the driver has none or refuses the request.
    names: BTreeMap<String, Vec<String>>,
}

impl EthtoolReader {
    /// Opens a socket for the requests; its type does not matter.
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self {
            socket,
            names: BTreeMap::new(),
        })
    }

    /// Returns the statistics of an interface that `wanted` selects by name.
    pub(super) fn read(&mut self, interface: &str, wanted: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        if !self.names.contains_key(interface) {
            let names = self.ask_names(interface).unwrap_or_default();
            self.names.insert(interface.to_owned(), names);
        }
        let Some(names) = self
            .names
            .get(interface)
            .filter(|names| names.iter().any(|name| wanted(name)))
        else {
            return Vec::new();
        };
        let Ok(Some(values)) = self.ask_values(interface, names.len()) else {
            // Another driver, or another number of rings: the names are read again at the next poll.
            self.names.remove(interface);
            return Vec::new();
        };
        let told = names.iter().cloned().zip(values);
        told.filter(|(name, _)| wanted(name)).collect()
    }

    /// Forgets interfaces that are gone, because one of the same name may be another device.
    pub(super) fn keep(&mut self, here: impl Fn(&str) -> bool) {
        self.names.retain(|interface, _| here(interface));
    }

    fn ask_names(&self, interface: &str) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: cmd, reserved, sset_mask (64 bits), data[]
        let mut info = words(&[GSSET_INFO, 0, 1 << STATS, 0, 0]);
        self.ask(interface, &mut info)?;
        let mask = word(&info, 2);
        let count = word(&info, 4) as usize;
        if mask == 0 || count == 0 || count > MOST {
            return Ok(Vec::new());
        }
        // struct ethtool_gstrings: cmd, string_set, len, data[]
        let mut strings = words(&[GSTRINGS, STATS, u32::try_from(count).unwrap_or(0)]);
        strings.resize(12 + 2 * count * NAME, 0);
        self.ask(interface, &mut strings)?;
        let given = (word(&strings, 2) as usize).min(count);
        Ok(strings[12..].chunks(NAME).take(given).map(name).collect())
    }

    /// Returns none if the driver has another number of statistics now.
    fn ask_values(&self, interface: &str, count: usize) -> io::Result<Option<Vec<u64>>> {
        let mut info = words(&[GSSET_INFO, 0, 1 << STATS, 0, 0]);
        self.ask(interface, &mut info)?;
        if word(&info, 4) as usize != count {
            return Ok(None);
        }
        // struct ethtool_stats: cmd, n_stats, data[] of 64 bits. The buffer has room for a driver that adds some in
        // between.
        let mut stats = words(&[GSTATS, u32::try_from(count).unwrap_or(0)]);
        stats.resize(8 + 2 * count * 8, 0);
        self.ask(interface, &mut stats)?;
        if word(&stats, 1) as usize != count {
            return Ok(None);
        }
        let values = stats[8..].chunks_exact(8).take(count);
        Ok(Some(
            values
                .map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes))
                .collect(),
        ))
    }

    fn ask(&self, interface: &str, question: &mut [u8]) -> io::Result<()> {
        let name = interface.as_bytes();
        // SAFETY: all-zero bytes are a valid ifreq, which is plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_data = question.as_mut_ptr().cast();
        // SAFETY: SIOCETHTOOL reads and writes the ifreq and the buffer that it points to. The buffer is laid out for
        // the command in its first word and has room for the answer: the kernel fills in at most as many entries as the
        // buffer holds, because their number was read just before and there is room for twice as many; both live until
        // the call returns.
        let told = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if told < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn word(bytes: &[u8], index: usize) -> u32 {
    let bytes = bytes
        .get(index * 4..index * 4 + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

/// Decodes a name, which ends at its first zero byte.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn interfaces_of_this_machine_are_asked_without_harm_and_missing_ones_have_nothing() {
        let mut ethtool = EthtoolReader::open().unwrap();
        assert_eq!(ethtool.read("no-such-nic", |_| true), []);
        assert_eq!(ethtool.read("", |_| true), []);
        assert_eq!(ethtool.read("a-name-that-is-too-long", |_| true), []);
        for interface in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let interface = interface.file_name().to_string_lossy().into_owned();
            let first = ethtool.read(&interface, |_| true);
            let second = ethtool.read(&interface, |_| true);
            // Names do not change between reads and are text.
            let names = |all: &[(String, u64)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&first), names(&second), "{interface}");
            assert!(first.iter().all(|(name, _)| !name.contains('\0')), "{first:?}");
        }
        ethtool.keep(|_| false);
        assert_eq!(ethtool.names.len(), 0);
    }

    #[test]
    fn names_end_where_the_kernel_ends_them() {
        let mut bytes = [0; NAME];
        bytes[..8].copy_from_slice(b"rx_bytes");
        assert_eq!(name(&bytes), "rx_bytes");
        assert_eq!(name(&[b'x'; NAME]), "x".repeat(NAME));
    }
}
