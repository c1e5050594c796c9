//! Text form of a plan, with its reasoning.

use rankguard_checkpoint_schedule::admission::GibDisplay;
use rankguard_checkpoint_schedule::governor::IntervalBound;
use rankguard_checkpoint_schedule::interval;
use rankguard_checkpoint_schedule::plan::{AlternativePlan, PlanInputs, TierPlan};
use rankguard_checkpoint_schedule::rates::FailureExtent;

use super::PlanReport;
use crate::display_text::{self, or_empty};
use crate::listing::{self, TableColumn};

/// Columns of a tier of the plan.
pub(super) const TIERS: &[TableColumn<TierPlan>] = &[
    ("tier", |tier| tier.name.clone()),
    ("every", |tier| or_empty(tier.interval_s.map(seconds))),
    ("every s", |tier| or_empty(tier.interval_s.map(|at| format!("{at:.1}")))),
    ("steps", |tier| or_empty(tier.every_steps)),
    ("takes", |tier| percent(tier.blocking)),
    ("mttf", |tier| {
        if tier.rate > 0.0 {
            seconds(1.0 / tier.rate)
        } else {
            String::new()
        }
    }),
    ("lost", |tier| {
        if tier.interval_s.is_some() {
            seconds(tier.lost_s)
        } else {
            String::new()
        }
    }),
];

const ALTERNATIVES: &[TableColumn<AlternativePlan>] = &[
    ("alternative", |other| other.name.clone()),
    ("every", |other| seconds(other.interval_s)),
    ("takes", |other| percent(other.blocking)),
    ("ettr", |other| format!("{:.4}", other.ettr)),
];

pub(super) fn lines(question: &PlanInputs, answer: &PlanReport) -> Vec<String> {
    let mut lines = failures(answer);
    lines.push(String::new());
    lines.extend(tiers(question, answer));
    lines.push(String::new());
    lines.extend(listing::table(&answer.plan.tiers, TIERS).lines().map(str::to_owned));
    lines.push(String::new());
    lines.push(format!(
        "Images take {} of the time; predicted ETTR {:.4}: {} of each hour are lost to images, rework, restarts and waiting.",
        percent(answer.plan.blocking),
        answer.plan.ettr,
        seconds(3_600.0 * (1.0 - answer.plan.ettr))
    ));
    lines.push(bound(question, answer.plan.bound));
    lines.push(String::new());
    lines.extend(
        listing::table(&answer.plan.alternatives, ALTERNATIVES)
            .lines()
            .map(str::to_owned),
    );
    lines.extend(memory(answer));
    if let Some(windows) = &answer.windows {
        lines.push(String::new());
        lines.extend(windows.lines(answer.memory.as_ref()));
    }
    lines
}

fn failures(answer: &PlanReport) -> Vec<String> {
    let rating = &answer.failures;
    let mut lines = vec![format!(
        "{} with {:.1} GiB of state each: expected time between failures {}{}.",
        display_text::count(answer.nodes as usize, "node"),
        answer.state_gib_per_node,
        seconds(rating.mttf_h * 3_600.0),
        rating.mttf_h_between.map_or_else(String::new, |(low, high)| {
            let low = seconds(low * 3_600.0);
            let high = seconds(high * 3_600.0);
            format!(" (90 % interval: {low} to {high})")
        })
    )];
    lines.extend(rating.from.iter().map(|from| format!("  from {}", from)));
    let word = |scope: FailureExtent| match scope {
        FailureExtent::Process => "ranks only",
        FailureExtent::Node => "one node and its memory",
        FailureExtent::Domain => "several nodes",
    };
    let shares: Vec<String> = rating
        .shares
        .iter()
        .map(|(scope, share)| format!("{} {}", percent(*share), word(*scope)))
        .collect();
    lines.push(format!("  extent of failures: {}", shares.join(", ")));
    lines
}

fn tiers(question: &PlanInputs, answer: &PlanReport) -> Vec<String> {
    let mut covered = 0.0;
    let pairs = question.tiers.iter().zip(&answer.plan.tiers).enumerate();
    pairs
        .map(|(at, (tier, planned))| {
            let own = (question.limited_coverage(at) - covered) * question.rate;
            covered = question.limited_coverage(at);
            let survives = format!("survives {} of the failures", percent(tier.covers));
            if planned.interval_s.is_none() {
                return format!(
                    "Tier {} {survives}; omitted: its images would cost more than they save.",
                    tier.name
                );
            }
            let best = interval::exact(tier.blocking_s, 1.0 / planned.rate);
            let moved = if planned.rate > own * (1.0 + 1e-9) {
                ", including those of the omitted tier"
            } else {
                ""
            };
            let latency = tier.latency_s.max(tier.blocking_s);
            let shortest = interval::shortest(tier.blocking_s, latency, question.in_flight);
            let why = if shortest > best {
                format!(
                    "on its own every {}, but an image takes {} to become usable",
                    seconds(best),
                    seconds(latency)
                )
            } else {
                format!("on its own optimal every {}", seconds(best))
            };
            format!(
                "Tier {} {survives}; it is the cheapest such tier for a failure every {}{moved}. An image blocks for {}: {why}.",
                tier.name,
                seconds(1.0 / planned.rate),
                seconds(tier.blocking_s),
            )
        })
        .collect()
}

fn bound(question: &PlanInputs, bound: IntervalBound) -> String {
    match bound {
        IntervalBound::Optimum => {
            "The optimum is within all limits; intervals are nested, so their ratios are integers.".to_owned()
        }
        IntervalBound::Latency => {
            "The intervals are the shortest that the tiers can take, longer than optimal; they are nested, so their \
             ratios are integers."
                .to_owned()
        }
        IntervalBound::Min => format!("The shortest interval allowed is {}.", seconds(question.limits.min_s)),
        IntervalBound::Max => format!("The longest interval allowed is {}.", seconds(question.limits.max_s)),
        IntervalBound::Budget => format!(
            "The budget of {} lengthens all intervals, so that more work is lost at a failure.",
            percent(question.limits.budget.unwrap_or_default())
        ),
    }
}

fn memory(answer: &PlanReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(memory) = &answer.memory {
        lines.push(String::new());
        if let Some(need) = &memory.need {
            let parts: Vec<String> = need
                .lines
                .iter()
                .map(|line| format!("{} {}", line.what, GibDisplay(line.bytes)))
                .collect();
            lines.push(format!(
                "Memory: {} of {} per node ({}).",
                GibDisplay(need.total),
                GibDisplay(need.headroom),
                parts.join(", ")
            ));
        }
        lines.extend(
            memory
                .refusal
                .as_ref()
                .map(|refusal| format!("Does not fit: {refusal}.")),
        );
    }
    let survived = answer.survival.iter().map(|one| {
        format!(
            "{} lost: {}{:.4}",
            one.lost,
            if one.exact { "" } else { "at least " },
            one.probability
        )
    });
    let survived: Vec<String> = survived.collect();
    if !survived.is_empty() {
        lines.push(format!(
            "Probability that peers hold everything after simultaneous node losses, all equally likely: {}.",
            survived.join(", ")
        ));
    }
    if let Some(spares) = &answer.spares {
        lines.push(match spares.wanted {
            Some(wanted) => format!(
                "{:.1} nodes in repair on average; {wanted} spares suffice with 99 % probability.",
                spares.expected_in_repair
            ),
            None => format!(
                "{:.1} nodes in repair on average; no number of spares suffices.",
                spares.expected_in_repair
            ),
        });
    }
    lines
}

/// Formats seconds with a suitable unit, up to days.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 99.95 => display_text::millis(s * 1e3),
        s if s < 5_940.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small < 10.0 => format!("{small:.2} %"),
        large => format!("{large:.1} %"),
    }
}
