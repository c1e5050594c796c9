//! GPU driver state of a stream: GPUs announced for the next lines, and the driver version.

use super::lane::LaneKey;
use crate::decode::DriverVersion;

/// Number of lines for which an announced GPU applies.
const ANNOUNCED_LINES: u64 = 3;

/// GPU driver of a stream, from its own log lines.
#[derive(Debug, Default)]
pub(super) struct DriverState {
    /// GPUs that it has announced.
    announced: Vec<AnnouncedGpu>,
    /// Driver version, once logged.
    version: Option<DriverVersion>,
}

/// GPU of `NVRM: The NVIDIA GPU 0000:9b:00.0 ...`: the driver names it first and its state in the next lines.
#[derive(Debug)]
struct AnnouncedGpu {
    lane: LaneKey,
    line_no: u64,
    gpu: String,
}

impl DriverState {
    /// Updates the state from a line.
    pub(super) fn update(&mut self, lane: &LaneKey, text: &str, line_no: u64) {
        self.announced
            .retain(|announced| line_no - announced.line_no <= ANNOUNCED_LINES);
        if let Some(gpu) = announced_gpu(text) {
            self.announced.push(AnnouncedGpu {
                lane: lane.clone(),
                line_no,
                gpu,
            });
        }
        self.version = announced_driver(text).or(self.version);
    }

    /// Returns the address of the GPU that a line of this lane refers to.
    pub(super) fn gpu(&self, lane: &LaneKey) -> Option<&str> {
        let announced = self.announced.iter().rfind(|announced| announced.lane == *lane);
        announced.map(|announced| announced.gpu.as_str())
    }

    pub(super) fn version(&self) -> Option<DriverVersion> {
        self.version
    }
}

/// Returns true if [`DriverState::update`] uses the text: an announced GPU or a driver version.
pub(super) fn is_driver_line(text: &str) -> bool {
    announced_gpu(text).is_some() || announced_driver(text).is_some()
}

/// Parses `NVRM: The NVIDIA GPU 0000:9b:00.0 (PCI ID: ...)` to the address of the GPU.
fn announced_gpu(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("NVRM: The NVIDIA GPU ")?;
    Some(rest.split([' ', '(']).next().unwrap_or(rest).to_owned())
}

/// Parses `NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15 ...` to the driver version.
fn announced_driver(text: &str) -> Option<DriverVersion> {
    text.contains("NVRM: loading")
        .then(|| DriverVersion::parse(text))
        .flatten()
}
