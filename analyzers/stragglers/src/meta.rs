//! Job sizes in a launcher's meta file, one `dp_size: 4` a line. All of them also follow from the trace.

use crate::problem::{InputProblem, ProblemList};

/// Content of the meta file beside a trace; missing keys are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceMetadata {
    pub trial_name: Option<String>,
    /// Number of data-parallel ranks.
    pub dp_size: Option<u32>,
    /// Number of pipeline stages.
    pub pp_size: Option<u32>,
    /// Number of tensor-parallel ranks of one pipeline worker.
    pub tp_size: Option<u32>,
    /// Number of model chunks of one stage.
    pub vpp_size: Option<u32>,
}

/// Parses a meta file of lines `key: value`; unknown keys are ignored.
pub fn read_meta(label: &str, text: &str) -> (TraceMetadata, ProblemList) {
    let mut meta = TraceMetadata::default();
    let mut problems = ProblemList::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') || line == "---" {
            continue;
        }
        let Some((key, value)) = line.split_once(':') else {
            problems.note(
                &format!("{label} line {}", index + 1),
                "is not `key: value`; the line is left out".to_owned(),
            );
            continue;
        };
        let key = key.trim();
        let value = value.trim().trim_matches(['"', '\'']);
        let size = match key {
            "trial_name" => {
                meta.trial_name = Some(value.chars().take(128).collect());
                continue;
            }
            "dp_size" => &mut meta.dp_size,
            "pp_size" => &mut meta.pp_size,
            "tp_size" => &mut meta.tp_size,
            "vpp_size" => &mut meta.vpp_size,
            _ => continue,
        };
        match value.parse() {
            Ok(count) if count > 0 => *size = Some(count),
            _ => problems.add(|| InputProblem {
                place: format!("{label} line {}", index + 1),
                field: key.to_owned(),
                what: "is not a count of at least 1; the size is told from the trace instead".to_owned(),
            }),
        }
    }
    (meta, problems)
}
