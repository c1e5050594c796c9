//! Address files: the listen addresses of the controller in its state directory.
//!
//! The files remain when the controller ends. With a listen port of 0, the next controller takes the port in
//! [`ADDRESS_FILE`] if it is free, so that agents with the old address can connect again.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tracing::warn;

use crate::error::ControllerError;

/// Name of the file with the listen address; holds `host:port` and a line end.
pub const ADDRESS_FILE: &str = "controller.addr";
/// Name of the file with the address of the endpoint for health and metrics, in the same format.
pub const METRICS_ADDRESS_FILE: &str = "metrics.addr";
/// Name of the file with the address of the HTTP API, in the same format.
pub const HTTP_ADDRESS_FILE: &str = "http.addr";
/// Name of the file with the address of the lighthouse for torchft, in the same format.
pub const TORCHFT_ADDRESS_FILE: &str = "torchft.addr";

/// Reads the address on which the controller of this state directory listens, or listened last. Fails with
/// [`io::ErrorKind::InvalidData`] if the file holds no socket address.
pub fn read_address(state_dir: &Path) -> io::Result<SocketAddr> {
    read_address_file(state_dir, ADDRESS_FILE)
}

/// Reads an address file.
pub(crate) fn read_address_file(state_dir: &Path, name: &str) -> io::Result<SocketAddr> {
    let path = state_dir.join(name);
    fs::read_to_string(&path)?.trim().parse().map_err(|problem| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} does not hold an address: {problem}", path.display()),
        )
    })
}

/// Writes the listen address by an atomic rename, so that a reader sees the old address or the new one.
pub(crate) fn write_address(state_dir: &Path, address: SocketAddr) -> Result<(), ControllerError> {
    write_address_file(state_dir, ADDRESS_FILE, address)
}

/// Writes an address file by an atomic rename. If the disk or a quota is full, logs a warning and returns `Ok`, and the
/// old file remains; any other failure is an error.
pub(crate) fn write_address_file(state_dir: &Path, name: &str, address: SocketAddr) -> Result<(), ControllerError> {
    let path = state_dir.join(name);
    let temp = state_dir.join(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&temp, format!("{address}\n")).and_then(|()| fs::rename(&temp, &path));
    match written {
        Ok(()) => Ok(()),
        Err(problem) if is_full(&problem) => {
            // The partial file must not occupy the last free bytes.
            let _ = fs::remove_file(&temp);
            warn!(path = %path.display(), %problem, %address, "cannot write the address to its file");
            Ok(())
        }
        Err(source) => Err(ControllerError::StateDir {
            what: "write",
            path,
            source,
        }),
    }
}

fn is_full(problem: &io::Error) -> bool {
    matches!(
        problem.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let address = SocketAddr::from(([127, 0, 0, 1], 4711));
        write_address(dir.path(), address).expect("a writable directory");
        assert_eq!(read_address(dir.path()).expect("the file just written"), address);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_file_with_something_else_is_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join(ADDRESS_FILE), "nowhere").expect("writable");
        let error = read_address(dir.path()).expect_err("not an address").to_string();
        assert!(error.contains("controller.addr does not hold an address"), "{error}");
    }
}
