//! Comparison of windows with whole images: need, cost and recommendation.

use rankguard_checkpoint_schedule::admission::GibDisplay;
use rankguard_checkpoint_schedule::plan::{CheckpointPlan, PlanInputs, StorageTier};
use rankguard_checkpoint_schedule::windows::{SaveRecommendation, WindowedSave, prefer};
use serde::Serialize;

use super::args::PlanArgs;
use super::text::seconds;
use super::{MemoryCheck, admission, bytes};
use crate::error::CliError;

/// Effect of windows on the job.
#[derive(Debug, Serialize)]
pub(super) struct WindowEffect {
    /// Window of each rank, MiB.
    window_mib: u64,
    /// Number of ranks per node.
    ranks: u32,
    memory: MemoryCheck,
    /// Blocking time of a save on the last tier, seconds: with whole images, and through windows (`blocking_s`).
    whole_blocking_s: f64,
    blocking_s: f64,
    write_s: f64,
    /// Interval with the last tier only: the other tiers have no images.
    interval_s: Option<f64>,
    ettr: f64,
    whole_ettr: f64,
    pub(super) prefer: SaveRecommendation,
}

/// Plans again with images that stream through windows; `None` without `--window`.
pub(super) fn windows(
    args: &PlanArgs,
    question: &PlanInputs,
    whole: (&CheckpointPlan, Option<&MemoryCheck>),
) -> Result<Option<WindowEffect>, CliError> {
    let (Some(mib), Some(last)) = (args.window, question.tiers.last()) else {
        return Ok(None);
    };
    let node_gib = args.state_gib / f64::from(args.nodes);
    let passing = WindowedSave {
        state: bytes(node_gib),
        windows: (mib << 20).saturating_mul(args.ranks.into()),
        copy_s: args.copy_gib_s.map_or(last.blocking_s, |speed| node_gib / speed),
        write_s: args.write_gib_s.map_or(last.latency_s, |speed| node_gib / speed),
    };
    let through = PlanInputs {
        tiers: vec![StorageTier {
            blocking_s: passing.blocking_s(),
            latency_s: passing.latency_s(),
            ..last.clone()
        }],
        ..question.clone()
    };
    let plan = through
        .solve()
        .map_err(|problem| CliError::usage(format!("cannot plan with windows: {problem}"), "change --window"))?;
    let memory = admission(args, passing.windows.min(passing.state), None);
    let (images, held) = whole;
    let fits = |admission: &MemoryCheck| admission.fits;
    Ok(Some(WindowEffect {
        window_mib: mib,
        ranks: args.ranks,
        whole_blocking_s: passing.copy_s,
        blocking_s: passing.blocking_s(),
        write_s: passing.write_s,
        interval_s: plan.tiers.first().and_then(|tier| tier.interval_s),
        ettr: plan.ettr,
        whole_ettr: images.ettr,
        prefer: prefer((held.is_none_or(fits), images.ettr), (memory.fits, plan.ettr)),
        memory,
    }))
}

impl WindowEffect {
    pub(super) fn lines(&self, whole: Option<&MemoryCheck>) -> Vec<String> {
        let lost = |ettr: f64| seconds(3_600.0 * (1.0 - ettr));
        let mib = self.window_mib;
        let ranks = self.ranks;
        let mut lines = vec![
            format!(
                "Windows of {mib} MiB for each of {ranks} ranks (`run --checkpoint-window {mib}`): a save blocks for {} \
                 instead of {}: the {} of the write, minus one window.",
                seconds(self.blocking_s),
                seconds(self.whole_blocking_s),
                seconds(self.write_s),
            ),
            format!(
                "  one image every {}, on the last tier only; {} of each hour are lost, with whole images {}",
                self.interval_s.map_or_else(|| "-".to_owned(), seconds),
                lost(self.ettr),
                lost(self.whole_ettr)
            ),
        ];
        let needs = |admission: Option<&MemoryCheck>| admission.map(MemoryCheck::needs);
        if let (Some(windows), Some(whole)) = (needs(Some(&self.memory)), needs(whole)) {
            lines.push(format!("  memory per node: {windows}, with whole images {whole}"));
        }
        lines.push(match self.prefer {
            SaveRecommendation::Windows if whole.is_some_and(|whole| !whole.fits) => {
                "  recommendation: windows; whole images do not fit".to_owned()
            }
            SaveRecommendation::Windows => "  recommendation: windows; less time is lost".to_owned(),
            SaveRecommendation::Whole if !self.memory.fits => {
                "  recommendation: whole images; windows of this size do not fit".to_owned()
            }
            SaveRecommendation::Whole => {
                "  recommendation: whole images; they fit, less time is lost, and other nodes can hold copies"
                    .to_owned()
            }
            SaveRecommendation::Neither => {
                "  neither fits: use smaller windows, a smaller reserve or more nodes".to_owned()
            }
        });
        lines
    }
}

impl MemoryCheck {
    fn needs(&self) -> String {
        let total = self.need.as_ref().map(|need| GibDisplay(need.total).to_string());
        total.unwrap_or_else(|| "more than available".to_owned())
    }
}
