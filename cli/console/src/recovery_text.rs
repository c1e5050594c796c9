//! Text of the recovery options of a case. Costs are shown in node-seconds.

use rankguard_model::{Case, OptionOutcome, RecoveryChoice, RecoveryCost, RecoveryOption};

use crate::display_text;

/// Headings of [`option_rows`].
pub const HEADINGS: [&str; 5] = ["option", "nodes", "cost", "of which", "result"];

/// Returns one row for each option.
pub fn option_rows(choice: &RecoveryChoice) -> Vec<Vec<String>> {
    choice.options.iter().map(option_row).collect()
}

fn option_row(option: &RecoveryOption) -> Vec<String> {
    let result = match option.outcome {
        OptionOutcome::Chosen => "chosen",
        OptionOutcome::Costlier => "not chosen",
        OptionOutcome::Unavailable => "not available",
    };
    let limit = match option.wait_ms {
        0 => String::new(),
        wait => format!(", at most {}", display_text::millis(wait as f64)),
    };
    let nodes = if option.nodes == 0 {
        "-".to_owned()
    } else {
        option.nodes.to_string()
    };
    vec![
        format!("{}{limit}", option.kind.describe()),
        nodes,
        option
            .cost
            .map_or_else(|| "-".to_owned(), |cost| node_seconds(cost.total())),
        option.cost.map_or_else(|| "-".to_owned(), |cost| parts(&cost)),
        format!("{result}: {}", option.reason),
    ]
}

fn parts(cost: &RecoveryCost) -> String {
    let parts = [
        ("wait", cost.wait),
        ("restart", cost.restart),
        ("repeated work", cost.repeated),
        ("missing capacity", cost.capacity),
        ("later growth", cost.growth),
        ("recurrence", cost.recurrence),
    ];
    let parts = parts.into_iter().filter(|(_, cost)| *cost > 0);
    let parts: Vec<String> = parts
        .map(|(name, cost)| format!("{name} {}", node_seconds(cost)))
        .collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(", ")
    }
}

fn node_seconds(node_ms: u64) -> String {
    format!("{:.1}", node_ms as f64 / 1e3)
}

/// Describes the unit of the costs and the inputs behind them, one sentence each.
pub fn input_lines(choice: &RecoveryChoice) -> Vec<String> {
    let unit = format!(
        "costs in node-seconds without useful work, against {} at full size",
        display_text::count(choice.nodes_full as usize, "node")
    );
    let inputs = choice.inputs.iter().map(|input| {
        let assumed = if input.assumed { "assumed; " } else { "" };
        format!("{}: {} ({assumed}{})", input.name, input.value, input.basis)
    });
    std::iter::once(unit).chain(inputs).collect()
}

/// Compares the predicted restart time of a case with the measured one; `None` without a prediction.
pub fn restart_line(case: &Case) -> Option<String> {
    let predicted = case.recovery.as_ref()?.restart_ms?;
    let measured = match (case.restart_ms(), &case.outcome) {
        (Some(measured), _) => format!("measured {}", display_text::millis(measured as f64)),
        (None, None) => "measured not yet".to_owned(),
        (None, Some(outcome)) if case.delays.launched_ms.is_none() => {
            format!("not measured, because no ranks were started ({outcome})")
        }
        (None, Some(outcome)) => format!("not measured, because the new ranks reported no step ({outcome})"),
    };
    Some(format!(
        "from the plan to the first step: predicted {}, {measured}",
        display_text::millis(predicted as f64)
    ))
}

#[cfg(test)]
mod tests {
    use rankguard_model::{CaseDelays, CaseId, ClassId, Entity, JobId, Severity, Timestamp, Verdict};

    use super::*;

    fn predicted(delays: CaseDelays, outcome: Option<&str>) -> String {
        let job = JobId::from("llm");
        let verdict = Verdict {
            class: ClassId::from("killed-by-signal"),
            layer: "none".to_owned(),
            severity: Severity::Failure,
            blamed: Entity::Job { job },
            blamed_part: None,
            root_rank: None,
            first_cause: None,
            confidence: 0.4,
            taxonomies: Default::default(),
            mitigation: Default::default(),
            alternatives: Vec::new(),
        };
        let mut case = Case::open(CaseId(1), verdict, Timestamp(0), Timestamp(0));
        case.recovery = Some(RecoveryChoice {
            at: Timestamp(0),
            nodes_before: 2,
            nodes_full: 2,
            restart_ms: Some(4_000),
            options: Vec::new(),
            inputs: Vec::new(),
        });
        (case.delays, case.outcome) = (delays, outcome.map(str::to_owned));
        restart_line(&case).expect("it has a prediction")
    }

    #[test]
    fn a_restart_that_was_not_measured_has_its_reason() {
        let planned = CaseDelays {
            plan_ms: Some(100),
            ..CaseDelays::default()
        };
        let launched = CaseDelays {
            launched_ms: Some(200),
            ..planned
        };
        let stepped = CaseDelays {
            first_step_ms: Some(2_100),
            ..launched
        };
        let cancelled = Some("the job was stopped: cancelled by an operator");
        for (delays, outcome, wanted) in [
            (planned, None, "measured not yet"),
            (stepped, Some("the job made steps again"), "measured 2.00 s"),
            (
                planned,
                cancelled,
                "not measured, because no ranks were started (the job was stopped: cancelled by an operator)",
            ),
            (
                launched,
                Some("the job completed"),
                "not measured, because the new ranks reported no step (the job completed)",
            ),
        ] {
            let line = predicted(delays, outcome);
            assert!(line.ends_with(wanted), "{line}");
        }
    }
}
