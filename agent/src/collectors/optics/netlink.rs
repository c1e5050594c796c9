//! Reads pages of a module's memory from the kernel, as `ethtool -m` does, over generic netlink (Linux 5.13 and later),
//! which knows the pages of every module family. Requires CAP_NET_ADMIN.
//!
//! A message is a header of 16 bytes, one of 4, and attributes: length, type and value, each padded to four bytes
//! (linux/netlink.h, linux/genetlink.h, linux/ethtool_netlink.h).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

use super::module::{BYTES, ModulePage};

/// Message types of the kernel: an error or the acknowledgement of a request, and the controller of families.
const ERROR: u16 = 2;
const CONTROLLER: u16 = 16;
/// Flag NLM_F_REQUEST.
const REQUEST: u16 = 1;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// ETHTOOL_MSG_MODULE_EEPROM_GET and its attributes.
const EEPROM_GET: u8 = 31;
const EEPROM_HEADER: u16 = 1;
const EEPROM_OFFSET: u16 = 2;
const EEPROM_LENGTH: u16 = 3;
const EEPROM_PAGE: u16 = 4;
const EEPROM_BANK: u16 = 5;
const EEPROM_BUS: u16 = 6;
const EEPROM_DATA: u16 = 7;
const HEADER_DEVICE: u16 = 2;
const NESTED: u16 = 1 << 15;
/// Length of the headers before the first attribute, bytes.
const HEADERS: usize = 20;
/// Longest wait for an answer, because a module's bus is slow and may be stuck.
const ANSWER: Duration = Duration::from_secs(5);

/// Netlink socket for module memory.
#[derive(Debug)]
pub(super) struct ModuleSocket {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

impl ModuleSocket {
    /// Opens the socket. Fails if the kernel lacks the ethtool family.
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Some(netlink::GENERIC);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER))?;
        let mut modules = Self {
            socket,
            family: CONTROLLER,
            sequence: 0,
        };
        let mut name = Vec::new();
        attribute(&mut name, FAMILY_NAME, b"ethtool\0");
        let answer = modules.ask(GET_FAMILY, &name)?;
        let id = find(&answer, FAMILY_ID).and_then(|value| value.try_into().ok());
        modules.family = id.map(u16::from_ne_bytes).ok_or(io::ErrorKind::Unsupported)?;
        Ok(modules)
    }

    /// Reads a page of an interface's module. Fails if there is no module, or it lacks the page.
    pub(super) fn page(&mut self, interface: &str, page: ModulePage) -> io::Result<Vec<u8>> {
        let mut device = Vec::new();
        attribute(&mut device, HEADER_DEVICE, format!("{interface}\0").as_bytes());
        let mut question = Vec::new();
        attribute(&mut question, EEPROM_HEADER | NESTED, &device);
        let offset = if page.lower { 0 } else { BYTES as u32 };
        attribute(&mut question, EEPROM_OFFSET, &offset.to_ne_bytes());
        attribute(&mut question, EEPROM_LENGTH, &(BYTES as u32).to_ne_bytes());
        attribute(&mut question, EEPROM_PAGE, &[page.page]);
        attribute(&mut question, EEPROM_BANK, &[0]);
        attribute(&mut question, EEPROM_BUS, &[page.bus]);
        let answer = self.ask(EEPROM_GET, &question)?;
        find(&answer, EEPROM_DATA)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sends a request and returns the attributes of its answer.
    fn ask(&mut self, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(self.family.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        // Port id 0: the kernel fills in the sender.
        message.extend([0; 4]);
        message.extend([command, 1, 0, 0]);
        message.extend(attributes);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut buffer = vec![0; 8192];
        loop {
            let (got, _) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            let answer = buffer.get(..got).unwrap_or_default();
            // A late answer belongs to an earlier request.
            if number(answer, 8) == Some(self.sequence) {
                return attributes_of(answer);
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

/// Returns the bytes behind the headers of a message, or the error that it carries.
fn attributes_of(message: &[u8]) -> io::Result<Vec<u8>> {
    let kind = message.get(4..6).and_then(|bytes| bytes.try_into().ok());
    if kind.map(u16::from_ne_bytes) == Some(ERROR) {
        let code = number(message, 16).map_or(0, u32::cast_signed);
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    let told = number(message, 0).map_or(0, |length| length as usize);
    let rest = message.get(HEADERS..told.min(message.len()));
    rest.map(<[u8]>::to_vec)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Returns the value of the first attribute of this type.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let half = |at: usize| Some(u16::from_ne_bytes(attributes.get(at..at + 2)?.try_into().ok()?));
        let length = usize::from(half(0)?);
        let found = half(2)?;
        let value = attributes.get(4..length)?;
        if found & !NESTED == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_torn_ones_are_not() {
        let mut all = Vec::new();
        attribute(&mut all, 1 | NESTED, b"abcde");
        attribute(&mut all, 7, b"data");
        assert_eq!(all.len(), 12 + 8);
        assert_eq!(
            (find(&all, 1), find(&all, 7), find(&all, 9)),
            (Some(&b"abcde"[..]), Some(&b"data"[..]), None)
        );
        for cut in 0..all.len() {
            assert_eq!(find(&all[..cut], 7), None, "{cut}");
        }
        // Invalid lengths.
        assert_eq!(find(&[0, 0, 9, 0, 1, 2], 7), None);
        assert_eq!(find(&[0xff, 0xff, 7, 0], 7), None);
    }

    #[test]
    fn an_error_of_the_kernel_is_an_error_and_a_short_message_too() {
        let mut message = vec![0; 20];
        message[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        message[16..20].copy_from_slice(&(-95_i32).to_ne_bytes());
        assert_eq!(attributes_of(&message).unwrap_err().raw_os_error(), Some(95));
        assert!(attributes_of(&[1, 2, 3]).is_err());
        assert!(attributes_of(&[0xff; 12]).is_err());
    }

    /// On any machine an interface without a module gives an error and nothing worse.
    #[test]
    fn interfaces_of_this_machine_are_asked_without_harm() {
        let Ok(mut modules) = ModuleSocket::open() else { return };
        let page = ModulePage {
            bus: 0x50,
            page: 0,
            lower: true,
        };
        for interface in ["lo", "no-such-nic", ""] {
            assert!(modules.page(interface, page).is_err(), "{interface}");
        }
    }
}
