//! What the GPU driver says before it says what failed: which GPU it will speak of, and which driver it is.

use super::lane::LaneKey;
use crate::decode::DriverVersion;

/// A GPU is announced for this many lines.
const ANNOUNCED_LINES: u64 = 3;

/// The driver of a stream, as far as it told of itself.
#[derive(Debug, Default)]
pub(super) struct Driver {
    /// GPUs that it has begun to speak of.
    announced: Vec<Announced>,
    /// The one that runs, once it has said so.
    version: Option<DriverVersion>,
}

/// `NVRM: The NVIDIA GPU 0000:9b:00.0 ...`: the driver names the GPU first and says in the next lines what became of it.
#[derive(Debug)]
struct Announced {
    lane: LaneKey,
    line_no: u64,
    gpu: String,
}

impl Driver {
    /// Hears a line.
    pub(super) fn hear(&mut self, lane: &LaneKey, text: &str, line_no: u64) {
        self.announced
            .retain(|announced| line_no - announced.line_no <= ANNOUNCED_LINES);
        if let Some(gpu) = announced_gpu(text) {
            self.announced.push(Announced {
                lane: lane.clone(),
                line_no,
                gpu,
            });
        }
        self.version = announced_driver(text).or(self.version);
    }

    /// The address of the GPU that a line of this lane is about.
    pub(super) fn gpu(&self, lane: &LaneKey) -> Option<&str> {
        let announced = self.announced.iter().rfind(|announced| announced.lane == *lane);
        announced.map(|announced| announced.gpu.as_str())
    }

    /// Its version.
    pub(super) fn version(&self) -> Option<DriverVersion> {
        self.version
    }
}

/// Whether a text is one that [`Driver::hear`] learns from.
pub(super) fn speaks(text: &str) -> bool {
    announced_gpu(text).is_some() || announced_driver(text).is_some()
}

/// `NVRM: The NVIDIA GPU 0000:9b:00.0 (PCI ID: ...)`: the driver names the GPU first and says later what became of it.
fn announced_gpu(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("NVRM: The NVIDIA GPU ")?;
    Some(rest.split([' ', '(']).next().unwrap_or(rest).to_owned())
}

/// `NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15 ...`
fn announced_driver(text: &str) -> Option<DriverVersion> {
    text.contains("NVRM: loading")
        .then(|| DriverVersion::parse(text))
        .flatten()
}
