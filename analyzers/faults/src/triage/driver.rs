//! State of the GPU driver, as its log lines in a stream report it: GPUs that the next lines refer to, and the version.

use super::lane::LaneKey;
use crate::decode::DriverVersion;

/// Number of lines of the stream after an announcement to which the announced GPU applies.
const ANNOUNCED_LINES: u64 = 3;

/// GPU driver state of one stream.
#[derive(Debug, Default)]
pub(super) struct DriverState {
    /// Announcements in the last [`ANNOUNCED_LINES`] lines, oldest first.
    announced: Vec<AnnouncedGpu>,
    /// Newest driver version that was logged; `None` before.
    version: Option<DriverVersion>,
}

/// GPU of `NVRM: The NVIDIA GPU 0000:9b:00.0 ...`: the driver reports its state in the next lines.
#[derive(Debug)]
struct AnnouncedGpu {
    lane: LaneKey,
    /// Number of the announcing line in the stream.
    line_no: u64,
    /// PCI address of the GPU.
    gpu: String,
}

impl DriverState {
    /// Updates the state from a line. `line_no` must not be lower than in earlier calls.
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

    /// Returns the PCI address of the GPU that the current line refers to: the last one announced in its lane, within
    /// [`ANNOUNCED_LINES`] lines.
    pub(super) fn gpu(&self, lane: &LaneKey) -> Option<&str> {
        let announced = self.announced.iter().rfind(|announced| announced.lane == *lane);
        announced.map(|announced| announced.gpu.as_str())
    }

    pub(super) fn version(&self) -> Option<DriverVersion> {
        self.version
    }
}

/// Returns true if [`DriverState::update`] takes a GPU or a driver version from the text.
pub(super) fn is_driver_line(text: &str) -> bool {
    announced_gpu(text).is_some() || announced_driver(text).is_some()
}

/// Returns the PCI address in `NVRM: The NVIDIA GPU 0000:9b:00.0 (PCI ID: ...)`; `None` for other lines.
fn announced_gpu(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("NVRM: The NVIDIA GPU ")?;
    Some(rest.split([' ', '(']).next().unwrap_or(rest).to_owned())
}

/// Returns the version in `NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15 ...`; `None` for other lines.
fn announced_driver(text: &str) -> Option<DriverVersion> {
    text.contains("NVRM: loading")
        .then(|| DriverVersion::parse(text))
        .flatten()
}
