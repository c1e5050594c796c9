//! The simulated node: files in the forms that an agent reads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rankguard_faults::classes;
use rustix::time::{ClockId, clock_gettime};

const DEVICES: usize = 8;
const RANKS: usize = 64;

/// Counter files of an adapter's port, all 0.
const COUNTERS: [&str; 12] = [
    "counters/link_downed",
    "counters/link_error_recovery",
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/packet_seq_err",
    "hw_counters/req_cqe_error",
    "hw_counters/roce_slow_restart",
];

/// State that every GPU of the simulated node reports.
const HEALTHY: &str = "temperature * 55\nslowdown * 87\necc * 0\necc-corrected * 0\necc-aggregate * 0\n\
    ecc-corrected-aggregate * 0\npending * 0\nremapped * 0\nunrepaired * 0\nremapped-corrected * 0\n\
    remapped-uncorrected * 0\nretired-corrected * 0\nretired-uncorrected * 0\nrecovery * 0\nreasons * 0\n\
    power * 420000\npower-limit * 700000\npcie-gen * 5\npcie-gen-max * 5\npcie-width * 16\npcie-width-max * 16\n\
    replays * 0\nclock * 1755\nclock-max * 1980\nutilization * 97\nprocesses * 1\nmig * 0\nthrottled-power * 0\n\
    throttled-thermal * 0\nthrottled-board * 0\nnvlinks * 18\nnvlink-recoveries * 0\nnvlink-replays * 0\nnvlink-crc * 0\n\
    memory-temperature * 60\nmemory-limit * 95\npcie-recoveries * 0\npcie-corrected * 0\npcie-nonfatal * 0\npcie-fatal * 0\n\
    fabric * 3\nfabric-status * 0\nfabric-health * 426\nfabric-summary * 1\nnvlink-integrity-errors * 0\n\
    nvlink-symbol-errors * 0\nnvlink-symbol-ber * 271\nnvlink-effective-ber * 0\nnvlink-strained * 0\n";

/// Files of the simulated node; removed on drop.
pub(super) struct SimulatedNode {
    folder: tempfile::TempDir,
    ranks: Vec<File>,
    kernel: File,
    steps: u64,
    lines: u32,
    /// Facts added to the scenario after construction.
    facts: String,
}

impl SimulatedNode {
    pub(super) fn make() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        for number in 0..DEVICES {
            adapter(&at("sys"), number)?;
            pci(&at("sys"), &gpu(number), "0x030200", None)?;
            pci(&at("sys"), &card(number), "0x020700", Some(&format!("mlx5_{number}")))?;
        }
        fs::create_dir(at("ranks"))?;
        let ranks: io::Result<Vec<File>> = (0..RANKS)
            .map(|rank| File::create(rank_log(folder.path(), rank)))
            .collect();
        fs::write(at("scenario"), format!("count {DEVICES}\n{HEALTHY}"))?;
        let kernel = File::create(at("kmsg"))?;
        Ok(Self {
            ranks: ranks?,
            kernel,
            steps: 0,
            lines: 0,
            facts: String::new(),
            folder,
        })
    }

    /// State directory of the process `name`.
    pub(super) fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join("state").join(name)
    }

    pub(super) fn kernel_log(&self) -> PathBuf {
        self.folder.path().join("kmsg")
    }

    pub(super) fn sysfs(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    pub(super) fn scenario(&self) -> PathBuf {
        self.folder.path().join("scenario")
    }

    pub(super) fn rank_logs(&self) -> impl Iterator<Item = PathBuf> {
        (0..RANKS).map(|rank| rank_log(self.folder.path(), rank))
    }

    /// Appends one step line to the log of every rank.
    pub(super) fn train(&mut self) -> io::Result<()> {
        self.steps += 1;
        let step = self.steps;
        for (rank, log) in self.ranks.iter_mut().enumerate() {
            let line = format!("[rank{rank}]: step {step} loss 2.{rank:03} grad_norm 0.71 tokens/s 41230 lr 3.0e-4\n");
            log.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    /// Appends a kernel-log line about a new device; returns the device's address.
    pub(super) fn inject(&mut self) -> io::Result<String> {
        self.lines += 1;
        let number = self.lines;
        let address = format!("{:04x}:{:02x}:00", number >> 8, number & 0xff);
        let since = clock_gettime(ClockId::Boottime);
        let micros = since.tv_sec * 1_000_000 + since.tv_nsec / 1_000;
        let line = format!(
            "4,{number},{micros},-;NVRM: Xid (PCI:{address}): 79, pid=4242, name=python, GPU has fallen off the bus.\n"
        );
        self.kernel.write_all(line.as_bytes())?;
        Ok(address)
    }
}

/// Device fault that is visible by polling, not by a log line.
#[derive(Debug, Clone, Copy)]
pub(super) enum PolledFault {
    /// The port of an adapter goes down.
    PortDown(usize),
    /// The PCIe link of an adapter loses half its lanes.
    Narrow(usize),
    /// An NVLink of a GPU goes down.
    NvlinkDown(usize),
    /// Calls into the GPU library no longer return.
    Wedged,
}

impl PolledFault {
    /// Returns the expected finding: a device and a class, or a class.
    pub(super) fn finding(self) -> String {
        match self {
            Self::PortDown(number) => format!("mlx5_{number} nic-link-down"),
            Self::Narrow(number) => format!("mlx5_{number} pcie-link-degraded"),
            Self::NvlinkDown(number) => format!("0000:{number:02x}:00 gpu-nvlink-error"),
            Self::Wedged => classes::GPU_DRIVER_FAULT.to_owned(),
        }
    }
}

impl SimulatedNode {
    /// Applies the change to the files.
    pub(super) fn change(&mut self, change: PolledFault) -> io::Result<()> {
        let sysfs = self.sysfs();
        match change {
            PolledFault::PortDown(number) => {
                let port = sysfs.join(format!("class/infiniband/mlx5_{number}/ports/1"));
                fs::write(port.join("state"), "1: DOWN\n")
            }
            PolledFault::Narrow(number) => {
                let device = sysfs.join("bus/pci/devices").join(card(number));
                fs::write(device.join("current_link_width"), "8\n")
            }
            PolledFault::NvlinkDown(number) => self.state_fact(&format!("nvlink-down {number} 3")),
            PolledFault::Wedged => self.state_fact("hang temperature"),
        }
    }

    /// Adds a fact to the scenario and replaces the file atomically, so that no call reads half of it.
    fn state_fact(&mut self, fact: &str) -> io::Result<()> {
        self.facts.push_str(fact);
        self.facts.push('\n');
        let fresh = self.folder.path().join("fresh");
        fs::write(&fresh, format!("count {DEVICES}\n{HEALTHY}{}", self.facts))?;
        fs::rename(fresh, self.scenario())
    }
}

/// PCI address of a GPU: the stand-in library numbers buses by index.
fn gpu(number: usize) -> String {
    format!("0000:{number:02x}:00.0")
}

/// PCI address of an adapter.
fn card(number: usize) -> String {
    format!("0000:{:02x}:00.0", 0xc0 + number)
}

fn pci(sysfs: &Path, address: &str, class: &str, rdma: Option<&str>) -> io::Result<()> {
    let device = sysfs.join("bus/pci/devices").join(address);
    fs::create_dir_all(&device)?;
    if let Some(rdma) = rdma {
        fs::create_dir_all(device.join("infiniband").join(rdma))?;
    }
    fs::write(device.join("class"), format!("{class}\n"))?;
    for end in ["current", "max"] {
        fs::write(device.join(format!("{end}_link_width")), "16\n")?;
        fs::write(device.join(format!("{end}_link_speed")), "32.0 GT/s PCIe\n")?;
    }
    for (file, sum) in [("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")] {
        let text = format!("RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nTOTAL_ERR_{sum} 0\n");
        fs::write(device.join(format!("aer_dev_{file}")), text)?;
    }
    Ok(())
}

fn rank_log(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("ranks/rank-{rank}.log"))
}

fn adapter(sysfs: &Path, number: usize) -> io::Result<()> {
    let port = sysfs.join(format!("class/infiniband/mlx5_{number}/ports/1"));
    fs::create_dir_all(port.join("counters"))?;
    fs::create_dir_all(port.join("hw_counters"))?;
    fs::write(port.join("state"), "4: ACTIVE\n")?;
    fs::write(port.join("phys_state"), "5: LinkUp\n")?;
    fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n")?;
    for counter in COUNTERS {
        fs::write(port.join(counter), "0\n")?;
    }
    let interface = sysfs.join(format!("class/net/ens{number}"));
    fs::create_dir_all(interface.join("device"))?;
    fs::write(interface.join("operstate"), "up\n")?;
    fs::write(interface.join("carrier_changes"), "2\n")
}
