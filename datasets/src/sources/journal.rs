//! Journal of an own controller: its events, replayed through the decision core.

use std::io;

use rankguard_journal::{
    EventRecord, EvidenceRecord, FailureRecord, JobAttempt, JobRecord, JournalError, JournalRecord, JournalSummary,
    MetricSample, NodeRecord, StateInterval, analyse_journal, is_journal,
};
use rankguard_model::{Classification, Entity, Role, Timestamp, with_causes};

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::panic_guard::quietly;
use crate::provenance::Population;
use crate::source::SourceFormat;
use crate::table::TableKind;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "rankguard-journal",
    title: "The journal of one's own controller",
    licence: "one's own",
    citation: "one's own",
    home: "journal.redb in the state directory of `rankguard controller`; it is only read, and the controller may run meanwhile",
    clock: "the controller's clock, Unix seconds; evidence on the same clock, as its agent has measured it",
    traps: &[
        "users, queues, GPUs and CPUs are null: a controller knows ranks and slots (x_ranks, x_slots)",
        "failures are cases whose verdict is a failure, those of users' programs among them: x_layer tells them apart",
        "repair_s is how long the blamed node could not be used; null where it stayed in use or is still away. x_recovery_s is until the job made steps again",
        "intervals that go on when the journal ends are cut there (x_cut); nothing is known of the time while no controller ran",
        "verdicts are those that this version reaches: another version's catalogue may name a case otherwise",
        "x_synthetic marks failures that a simulation or an injection made up",
    ],
    role,
    read,
    ..SourceFormat::PLAIN
};

fn role(head: &FileHead) -> Option<&'static str> {
    let ours = head.bytes.starts_with(b"redb") && quietly(|| is_journal(&head.path)).unwrap_or(true);
    ours.then_some("journal")
}

fn read(_: &'static str, head: &FileHead, _: &mut InputFile, load: &mut LoadState) {
    let ended = quietly(|| analyse_journal(&head.path, |record| take(record, load)));
    match ended {
        Ok(Ok(end)) => finish(&end, load),
        Ok(Err(problem)) => load.cut_short(&io::Error::other(with_causes(&problem))),
        Err(_) => load.cut_short(&io::Error::other("the journal is damaged")),
    }
}

fn finish(end: &JournalSummary, load: &mut LoadState) {
    load.rows(end.entries);
    load.window = end
        .first
        .zip(end.last)
        .map(|(first, last)| (seconds(first), seconds(last)));
    // Recorded evidence has one sender, and the origin of its nodes is unknown.
    load.population = (end.nodes > 0 && !end.replayed).then_some(Population {
        count: end.nodes,
        unit: "nodes",
        from: "the journal: every node whose agent ever joined",
    });
    load.at(end.entries);
    if end.replayed {
        load.report_kept_row("replayed", "", || {
            "a controller that takes replays only wrote it: recorded evidence of somewhere else, and no cluster's life"
                .to_owned()
        });
    }
    if end.removed > 0 {
        load.report_kept_row("retention", "", || {
            format!(
                "the controller's retention has removed {} entries before the first one (controller.journal.retain_days, \
                 controller.journal.retain_bytes): jobs, nodes and cases of that time are known as they were left",
                end.removed
            )
        });
    }
    if end.in_use {
        load.report_kept_row("in-use", "", || {
            "its controller runs and goes on behind this entry, the last one when reading began; the digest is of a file that grows"
                .to_owned()
        });
    }
    if end.open > 0 {
        load.report_kept_row("open-case", "", || {
            format!(
                "{} cases were not concluded when the journal ended; they are no failures yet",
                end.open
            )
        });
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e9
}

fn span(from: Timestamp, to: Timestamp) -> f64 {
    (to.0 as f64 - from.0 as f64) / 1e9
}

fn take(record: JournalRecord, load: &mut LoadState) {
    match record {
        JournalRecord::Problem(problem) => {
            if let JournalError::Gap { entry, .. } | JournalError::Unreadable { entry, .. } = &problem {
                load.at(*entry);
            }
            load.lose("bad-row", "entry", || {
                format!(
                    "{}; left out, and what follows from it is not known",
                    with_causes(&problem)
                )
            });
        }
        JournalRecord::Evidence(evidence) => evidence_row(&evidence, load),
        JournalRecord::Sample(value) => sample(&value, load),
        JournalRecord::Event(event) => controller_event(&event, load),
        JournalRecord::Interval(interval) => outage(&interval, load),
        JournalRecord::Usable { at, nodes } => {
            load.row(TableKind::Capacity)
                .num("time", seconds(at))
                .num("available", nodes as f64);
        }
        JournalRecord::Job(found) => job(&found, load),
        JournalRecord::Attempt(found) => attempt(&found, load),
        JournalRecord::Node(found) => node(&found, load),
        JournalRecord::Failure(found) => failure(&found, load),
    }
}

/// Returns the most relevant classification: the first that is not noise.
fn top(marks: &[Classification]) -> Option<&Classification> {
    marks.iter().find(|mark| mark.role != Role::Noise).or(marks.first())
}

fn evidence_row(seen: &EvidenceRecord, load: &mut LoadState) {
    let evidence = &seen.evidence;
    let mark = top(&evidence.marks);
    let role = mark.map_or("", |mark| match mark.role {
        Role::Root => "root",
        Role::Cascade => "cascade",
        Role::Confirmation => "confirmation",
        Role::Noise => "noise",
    });
    let node = evidence.entity.node().unwrap_or(&evidence.id.node);
    let job = evidence.entity.job().map_or("", |job| job.as_str());
    // Complete evidence, so that it can be replayed unchanged.
    let text = serde_json::to_string(evidence).unwrap_or_default();
    load.row(TableKind::Events)
        .num("time", seconds(evidence.at))
        .text("node", node.as_str())
        .text("label", mark.map_or("", |mark| mark.class.as_str()))
        .text("severity", role)
        .text("message", &seen.text)
        .text("x_kind", "evidence")
        .text("x_job", job)
        .num("x_rank", evidence.entity.rank().map(|rank| f64::from(rank.0)))
        .text("x_evidence", &text);
}

fn controller_event(event: &EventRecord, load: &mut LoadState) {
    load.row(TableKind::Events)
        .num("time", seconds(event.at))
        .text("node", event.node.as_ref().map_or("", |node| node.as_str()))
        .text("message", &event.text)
        .text("x_kind", event.what);
}

fn sample(value: &MetricSample, load: &mut LoadState) {
    load.row(TableKind::Samples)
        .num("time", seconds(value.at))
        .text("node", value.node.as_str())
        .text("metric", &value.metric)
        .num("value", value.value)
        .text("unit", &value.unit);
}

fn outage(interval: &StateInterval, load: &mut LoadState) {
    let up = interval.state == "healthy";
    load.row(TableKind::Outages)
        .text("node", interval.node.as_str())
        .num("start", seconds(interval.from))
        .num("end", seconds(interval.to))
        .text("state", if up { "up" } else { "down" })
        .text("x_cause", if up { "" } else { interval.state })
        .num("x_cut", f64::from(u8::from(interval.is_cut)));
}

fn job(job: &JobRecord, load: &mut LoadState) {
    let raw = job.reason.as_deref().unwrap_or(job.state);
    load.row(TableKind::Jobs)
        .text("job", job.job.as_str())
        .num("submit", seconds(job.submitted))
        .num("start", job.started.map(seconds))
        .num("end", job.ended.map(seconds))
        .num("elapsed_s", job.started.zip(job.ended).map(|(from, to)| span(from, to)))
        .text("state", job.state)
        .text("state_raw", raw)
        .num("nodes", job.nodes.map(|nodes| nodes as f64))
        .num("x_ranks", job.ranks.map(|ranks| ranks as f64))
        .num("x_step", job.step.map(|step| step.0 as f64));
}

fn attempt(attempt: &JobAttempt, load: &mut LoadState) {
    let nodes: Vec<&str> = attempt.nodes.iter().map(|node| node.as_str()).collect();
    load.row(TableKind::Attempts)
        .text("job", attempt.job.as_str())
        .text("attempt", &attempt.generation.to_string())
        .num("start", seconds(attempt.start))
        .num("end", attempt.end.map(seconds))
        .text("state", attempt.state)
        .text("node", &nodes.join(","))
        .text("x_plan", attempt.kind)
        .num("x_ranks", f64::from(attempt.ranks))
        .num("x_step", attempt.step.map(|step| step.0 as f64))
        .num("x_case", attempt.ended_by.map(|case| case.0 as f64));
}

fn node(node: &NodeRecord, load: &mut LoadState) {
    load.row(TableKind::Nodes)
        .text("node", node.node.as_str())
        .text("kind", "node")
        .text("rack", &node.failure_domain)
        .num("installed", seconds(node.joined))
        .num("x_slots", f64::from(node.slots));
}

fn failure(failure: &FailureRecord, load: &mut LoadState) {
    let device = match &failure.blamed {
        Entity::Device { device, .. } => device.to_string(),
        _ => String::new(),
    };
    if failure.is_synthetic {
        load.report_kept_row("synthetic", "x_synthetic", || {
            format!(
                "case {} was made up by a simulation or an injection; kept and marked",
                failure.case
            )
        });
    }
    let at = failure.at;
    let back = failure.back;
    load.row(TableKind::Failures)
        .num("time", seconds(at))
        .num("end", back.map(seconds))
        .num("repair_s", back.map(|back| span(at, back)))
        .text("node", failure.blamed.node().map_or("", |node| node.as_str()))
        .text("device", &device)
        .text("class", failure.class.as_str())
        .text("level", "failure")
        .text("job", failure.job.as_ref().map_or("", |job| job.as_str()))
        .text("x_scope", &failure.scope.to_string())
        .text("x_layer", &failure.layer)
        .num("x_case", failure.case.0 as f64)
        .num("x_attempt", failure.generation.map(|generation| generation.0 as f64))
        .num("x_confidence", failure.confidence)
        .num("x_detect_s", span(at, failure.detected))
        .num("x_recovery_s", failure.recovered.map(|recovered| span(at, recovered)))
        .num("x_steps_lost", failure.steps_lost.map(|steps| steps as f64))
        .num("x_synthetic", f64::from(u8::from(failure.is_synthetic)));
}
