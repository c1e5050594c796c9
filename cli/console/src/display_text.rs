//! Text of states, numbers and catalogue names for terminal output. States are spelled as in JSON.

use serde::{Serialize, Serializer};

use rankguard_model::{
    Case, CaseState, JobState, JobView, JournalGap, NodeState, NodeView, Role, Severity, TorchrunMemberState,
    TorchrunState, TorchrunView, Verdict,
};

pub fn job_state(state: JobState) -> &'static str {
    match state {
        JobState::Pending => "pending",
        JobState::Starting => "starting",
        JobState::Running => "running",
        JobState::Recovering => "recovering",
        JobState::Finished => "finished",
        JobState::Stopped => "stopped",
    }
}

pub fn torchrun_state(state: TorchrunState) -> &'static str {
    match state {
        TorchrunState::Waiting => "waiting",
        TorchrunState::Running => "running",
        TorchrunState::Restarting => "restarting",
        TorchrunState::Closed => "closed",
    }
}

pub fn torchrun_member_state(state: TorchrunMemberState) -> &'static str {
    match state {
        TorchrunMemberState::Running => "running",
        TorchrunMemberState::Stopping => "stopping",
        TorchrunMemberState::Waiting => "waiting",
        TorchrunMemberState::Spare => "spare",
        TorchrunMemberState::Finished => "finished",
        TorchrunMemberState::Disconnected => "disconnected",
    }
}

/// Counts the members of a run in one state.
pub fn torchrun_members(run: &TorchrunView, state: TorchrunMemberState) -> usize {
    run.members.iter().filter(|member| member.state == state).count()
}

pub fn node_state(state: NodeState) -> &'static str {
    match state {
        NodeState::Healthy => "healthy",
        NodeState::Cordoned => "cordoned",
        NodeState::Lost => "lost",
        NodeState::Fencing => "fencing",
    }
}

/// Returns the state of a node, or `in use although faulty` if a verdict blames a node that could not be cordoned.
pub fn node_use(node: &NodeView) -> &'static str {
    if node.faulty_in_use.is_some() {
        "in use although faulty"
    } else {
        node_state(node.state)
    }
}

/// Returns the state of a case in words, or `awaits decision` if an operator has to decide about it.
pub fn case_progress(case: &Case) -> &'static str {
    match case.state {
        _ if case.awaits_operator.is_some() => "awaits decision",
        CaseState::FaultPresent => "fault present",
        state => case_state(state),
    }
}

/// Returns the words for a case without an outcome.
pub fn no_outcome(case: &Case) -> &'static str {
    if case.is_open() { "none yet" } else { "none" }
}

/// Returns the state of a case as in JSON: `awaits-decision`, or as [`case_state`] does.
pub fn case_progress_id(case: &Case) -> &'static str {
    if case.awaits_operator.is_some() {
        "awaits-decision"
    } else {
        case_state(case.state)
    }
}

/// Case for JSON output, with the state of [`case_progress_id`].
#[derive(Debug)]
pub struct CaseDocument<'a>(pub &'a Case);

impl Serialize for CaseDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.awaits_operator.is_none() {
            return self.0.serialize(serializer);
        }
        let mut document = serde_json::to_value(self.0).map_err(serde::ser::Error::custom)?;
        document["state"] = case_progress_id(self.0).into();
        document.serialize(serializer)
    }
}

pub fn case_state(state: CaseState) -> &'static str {
    match state {
        CaseState::Open => "open",
        CaseState::Recovering => "recovering",
        CaseState::FaultPresent => "fault-present",
        CaseState::Recovered => "recovered",
        CaseState::Closed => "closed",
    }
}

pub fn role(role: Role) -> &'static str {
    match role {
        Role::Root => "root",
        Role::Cascade => "cascade",
        Role::Confirmation => "confirmation",
        Role::Noise => "noise",
    }
}

pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Failure => "failure",
    }
}

/// Returns the layer of a verdict. Older rules state the layer of its class for a slow rank, which is no finding about hardware.
pub fn verdict_layer(verdict: &Verdict) -> String {
    let layer = &verdict.layer;
    let is_slow_rank =
        verdict.class.as_str() == rankguard_faults::classes::STRAGGLER && verdict.blamed.rank().is_some();
    if is_slow_rank && layer == "hardware" {
        return format!("{layer} (the layer of the class; nothing shows why the rank is slow)");
    }
    layer.clone()
}

/// Formats a value, or a dash for `None`.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Formats a value of a table or CSV cell; `None` gives an empty text.
pub fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats entries that a restored journal lacks.
pub fn journal_gap(gap: &JournalGap) -> String {
    format!(
        "the history has a gap: {} (found at {}); what happened in it is in no case, job, report or cordon",
        gap.what, gap.found_at
    )
}

/// Returns true if the journal lacks entries of the time of a job, so that its counts are lower limits. A job that ended
/// before the gap was found had ended before the copy was made.
pub fn has_gap(job: &JobView, gaps: &[JournalGap]) -> bool {
    let is_of_job = |gap: &JournalGap| {
        let ended_after = job.ended_at.is_none_or(|ended| ended >= gap.found_at);
        job.submitted_at < gap.found_at && ended_after
    };
    gaps.iter().any(is_of_job)
}

/// Formats a number with its noun: `1 rank`, `3 ranks`, `2 indexes`, `2 copies`.
pub fn count(number: usize, noun: &str) -> String {
    if let Some(stem) = noun.strip_suffix("py").filter(|_| number != 1) {
        return format!("{number} {stem}pies");
    }
    let plural = match number {
        1 => "",
        _ if noun.ends_with(['x', 's']) => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}

/// Formats a duration in milliseconds: `0.42 ms`, `640 ms`, `2.41 s`, `3 min 20 s`. Whole milliseconds below 1 s have
/// no decimals.
pub fn millis(millis: f64) -> String {
    match millis {
        whole if whole.abs() < 1_000.0 && whole.fract() == 0.0 => format!("{whole:.0} ms"),
        small if small.abs() < 9.95 => format!("{small:.2} ms"),
        short if short.abs() < 999.5 => format!("{short:.0} ms"),
        medium if medium.abs() < 99_950.0 => format!("{:.2} s", medium / 1e3),
        long => {
            // Rounded first, so that 59.9 s become a minute.
            let seconds = (long / 1e3).round();
            format!("{} min {:02.0} s", (seconds / 60.0).trunc(), (seconds % 60.0).abs())
        }
    }
}

/// Formats a number of bytes with a binary unit up to PiB: `512 B`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Formats a category of a taxonomy as `published name (id)`, or its id alone if the catalogue has no other name.
pub fn category(taxonomy: &str, category: &str) -> String {
    match rankguard_faults::Catalogue::builtin().category_name(taxonomy, category) {
        Some(name) if name != category => format!("{name} ({category})"),
        _ => category.to_owned(),
    }
}

/// Returns the short name of a taxonomy of the built-in catalogue, or its id if it is unknown.
pub fn taxonomy(id: &str) -> String {
    rankguard_faults::Catalogue::builtin()
        .taxonomy(id)
        .map_or_else(|| id.to_owned(), |taxonomy| taxonomy.short.clone())
}

/// Formats the sources of a recommendation: their titles, or the ids that the catalogue does not have. Without a
/// source, the text states that Rankguard inferred the recommendation.
pub fn sources(ids: &[String]) -> String {
    if ids.is_empty() {
        return "inferred by Rankguard, not a published recommendation".to_owned();
    }
    let title = |id: &String| {
        rankguard_faults::Catalogue::builtin()
            .source_title(id)
            .unwrap_or(id)
            .to_owned()
    };
    format!(
        "recommended by {}",
        ids.iter().map(title).collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_spelled_as_in_json() {
        let json = |value: serde_json::Value| value.as_str().map(str::to_owned).unwrap_or_default();
        for state in [JobState::Pending, JobState::Recovering, JobState::Stopped] {
            assert_eq!(json(serde_json::json!(state)), job_state(state));
        }
        for state in [CaseState::Open, CaseState::Recovered, CaseState::Closed] {
            assert_eq!(json(serde_json::json!(state)), case_state(state));
        }
        assert_eq!(json(serde_json::json!(Role::Confirmation)), role(Role::Confirmation));
        assert_eq!(
            json(serde_json::json!(NodeState::Cordoned)),
            node_state(NodeState::Cordoned)
        );
        assert_eq!(json(serde_json::json!(Severity::Failure)), severity(Severity::Failure));
    }

    #[test]
    fn one_thing_has_a_singular_noun() {
        assert_eq!(
            [
                count(0, "case"),
                count(1, "case"),
                count(2, "case"),
                count(1, "index"),
                count(2, "index")
            ],
            ["0 cases", "1 case", "2 cases", "1 index", "2 indexes"]
        );
    }

    #[test]
    fn numbers_get_the_unit_that_fits() {
        assert_eq!(
            [millis(0.42), millis(640.4), millis(2_412.0), millis(200_000.0)],
            ["0.42 ms", "640 ms", "2.41 s", "3 min 20 s"]
        );
        assert_eq!(
            [
                millis(119_999.0),
                millis(119_400.0),
                millis(-119_999.0),
                millis(61_000.0)
            ],
            ["2 min 00 s", "1 min 59 s", "-2 min 00 s", "61.00 s"]
        );
        assert_eq!(
            [bytes(12), bytes(2_048), bytes(3 << 30)],
            ["12 B", "2.0 KiB", "3.0 GiB"]
        );
    }
}
