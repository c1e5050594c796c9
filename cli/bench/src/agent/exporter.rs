//! The exporter that most nodes run, scraped once a second as a monitoring system does.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rankguard_console::child::die_with_parent;

use super::process::ChildGuard;
use super::usage::ProcessUsage;

/// Program name in Debian.
pub(super) const NAME: &str = "prometheus-node-exporter";

/// Maximum wait for one answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Running exporter process.
pub(super) struct ExporterProcess {
    process: ChildGuard,
    address: String,
}

impl ExporterProcess {
    /// Starts the exporter; `None` if it is not installed.
    pub(super) fn start() -> io::Result<Option<Self>> {
        // The exporter accepts no inherited listener: a port is bound, released and passed on.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let started = die_with_parent(&mut Command::new(NAME))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Ok(Some(Self {
                process: ChildGuard(child),
                address,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Scrapes all metrics. A refused connection is no error: the exporter may not be up yet.
    pub(super) fn scrape(&mut self) -> io::Result<()> {
        let mut stream = match TcpStream::connect(&self.address) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            other => other?,
        };
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    pub(super) fn usage(&self) -> io::Result<ProcessUsage> {
        ProcessUsage::of(&[self.process.0.id()])
    }
}
