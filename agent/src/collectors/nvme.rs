//! NVMe disks: health from the SMART log page of each controller.
//!
//! The command goes through the disk's driver, which may wait for a stuck disk: the collector has a thread of its own
//! and reads once a minute. It only reads. Absent: recorded trees, vendor log pages, SATA and SAS disks.

mod admin;
mod page;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use rankguard_model::{Device, DeviceKind, Entity, EvidenceSource};

use super::threshold_evaluator::ThresholdEvaluator;
use super::thresholds::{self, ThresholdRule};
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::sample;
use crate::stop_flag::StopFlag;
use page::PAGE_BYTES;

/// Poll interval of the disks.
const EVERY: Duration = Duration::from_secs(60);

/// Most disks that are read.
const DISKS: usize = 64;

/// Readings that are added to every finding about a disk.
const BESIDE: &[&str] = &["nvme.spare_percent", "nvme.percentage_used", "nvme.temperature"];

/// Returns the threshold rules of disks.
pub(super) fn rules() -> &'static [ThresholdRule] {
    static RULES: LazyLock<Vec<ThresholdRule>> =
        LazyLock::new(|| thresholds::of_file(include_str!("nvme/thresholds.toml")));
    &RULES
}

/// Collector of the health of NVMe disks.
#[derive(Debug)]
pub(crate) struct NvmeCollector {
    pub(crate) sysfs_root: PathBuf,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

impl NvmeCollector {
    /// Polls the disks until `stop` is set.
    pub(crate) fn run(self) {
        let mut judge = ThresholdEvaluator::new(rules(), BESIDE);
        let mut told = false;
        loop {
            let refused = self.look(&mut judge, |disk| admin::health(&Path::new("/dev").join(disk)));
            if let Some((disk, problem)) = refused.filter(|_| !std::mem::replace(&mut told, true)) {
                let what = format!("the health of NVMe disks is not watched: {disk}: {problem}");
                self.intake.gap(EvidenceSource::Host, what, None);
            }
            if self.stop.wait(EVERY) {
                return;
            }
        }
    }

    /// Reads every disk. Returns the first one that failed.
    fn look(
        &self,
        judge: &mut ThresholdEvaluator,
        ask: impl Fn(&str) -> io::Result<[u8; PAGE_BYTES]>,
    ) -> Option<(String, io::Error)> {
        let mut refused = None;
        for disk in self.disks() {
            let readings = match ask(&disk) {
                Ok(page) => page::read(&page),
                Err(problem) => {
                    refused.get_or_insert((disk, problem));
                    continue;
                }
            };
            for change in judge.evaluate(clock::steady(), &disk, &readings) {
                let entity = Entity::Device {
                    node: self.intake.node().clone(),
                    device: Device {
                        kind: DeviceKind::Disk,
                        address: change.address,
                    },
                };
                let sighting = sample(EvidenceSource::Host, entity, change.metric, change.value, change.unit);
                self.intake.push(sighting.marked(change.marks));
            }
        }
        refused
    }

    /// Returns the controllers by name, such as `nvme0`, which also names the PCI device in evidence.
    fn disks(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.sysfs_root.join("class/nvme"));
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.take(DISKS).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::NodeId;

    use super::*;
    use crate::collectors::testing::told;

    #[test]
    fn a_disk_that_fails_is_told_once_and_one_that_is_not_asked_is_no_news() {
        let dir = tempfile::tempdir().expect("a folder");
        for disk in ["nvme0", "nvme1"] {
            std::fs::create_dir_all(dir.path().join("class/nvme").join(disk)).expect("a folder");
        }
        let nvme = NvmeCollector {
            sysfs_root: dir.path().to_owned(),
            intake: EvidenceIntake::new(NodeId::from("a")),
            stop: StopFlag::default(),
        };
        let mut judge = ThresholdEvaluator::new(rules(), BESIDE);
        let mut look = |errors: u8, warning: u8| {
            let refused = nvme.look(&mut judge, |disk| match disk {
                "nvme0" => {
                    let mut page = page::healthy();
                    (page[0], page[160]) = (warning, errors);
                    Ok(page)
                }
                _ => Err(io::ErrorKind::PermissionDenied.into()),
            });
            assert!(refused.is_some_and(|(disk, _)| disk == "nvme1"));
            nvme.intake.drain().iter().map(told).collect::<Vec<_>>()
        };
        assert!(look(7, 0).is_empty(), "errors of unknown age");
        let grown = look(8, 0);
        assert!(
            grown.len() == 1 && grown[0].starts_with("node a, disk nvme0 | local-disk-fault |"),
            "{grown:?}"
        );
        assert_eq!(look(8, 0b1000).len(), 1, "it became read-only");
        assert!(look(8, 0b1000).is_empty());
    }
}
