//! Faults that last while their job goes on: the case is open until the end of the fault is seen.

use std::time::Duration;

use rankguard_core::{DecisionState, Event, Policy, RULES};
use rankguard_model::{
    Case, CaseId, CaseNote, CaseNoteKind, CaseState, CheckpointTiers, ClassId, Classification, Device, DeviceKind,
    Entity, EvidenceBody, EvidenceSource, FieldValues, JobSpec, NodeId, NodeInfo, ProcessExit, Rank, Role, Step,
    Timestamp,
};

use crate::cluster::{Cluster, job, node};

fn mark(class: &str, role: Role, signature: &str) -> Classification {
    Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.95,
        signature: signature.into(),
        fields: FieldValues::new(),
    }
}

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn device(node: NodeId, kind: DeviceKind, address: &str) -> Entity {
    let address = address.to_owned();
    Entity::Device {
        node,
        device: Device { kind, address },
    }
}

fn opened(cluster: &Cluster) -> Vec<CaseId> {
    cluster.state.status(cluster.now).open_cases
}

fn only_case(cluster: &Cluster) -> Case {
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:#?}") };
    case.clone()
}

fn outcome(cluster: &Cluster) -> String {
    only_case(cluster).outcome.unwrap_or_default()
}

fn outcome_of_first(cluster: &Cluster) -> String {
    cluster.cases()[0].outcome.clone().unwrap_or_default()
}

/// Ranks stand at step 40 for more than `hang_ms` while rank 0 makes steps.
fn standing(rules: u32, ranks: &[u32]) -> Cluster {
    let mut cluster = Cluster::running(Policy {
        rules,
        ..Policy::default()
    });
    cluster.wait(Duration::from_secs(31));
    for rank in ranks {
        reports_stall(&mut cluster, *rank);
    }
    steps_of_first(&mut cluster);
    cluster
}

fn reports_stall(cluster: &mut Cluster, rank: u32) {
    let mut stalled = mark("hang-no-error", Role::Confirmation, "ranks.stalled");
    stalled.fields = [("step", "40".to_owned()), ("silent_ms", "31000".to_owned())].into();
    cluster.rank_says(rank, line("no step for 31 s after step 40"), vec![stalled]);
}

fn steps_of_first(cluster: &mut Cluster) {
    for step in 41..360 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
}

#[test]
fn a_standing_rank_keeps_its_case_open_until_it_makes_a_step() {
    let mut cluster = standing(RULES, &[5]);
    assert_eq!(opened(&cluster), [CaseId(1)]);
    for step in 360..4_000 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    let case = only_case(&cluster);
    assert_eq!((case.state, case.closed_at), (CaseState::FaultPresent, None));
    assert_eq!(case.clears_label(), "cleared by");
    cluster.progress(5, 41);
    assert_eq!(opened(&cluster), []);
    let case = only_case(&cluster);
    assert_eq!((case.state, case.closed_at), (CaseState::Closed, Some(cluster.now)));
    let now = cluster.now;
    let wanted = format!("every rank of the job was alive, so nothing was restarted; rank 5 made step 41 at {now}");
    assert_eq!(case.outcome, Some(wanted));
}

#[test]
fn journals_of_older_rules_close_the_case_at_once() {
    let cluster = standing(7, &[5]);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert_eq!(opened(&cluster), []);
}

#[test]
fn the_case_of_several_standing_ranks_is_open_until_the_last_one_makes_a_step() {
    let mut cluster = standing(RULES, &[3, 5]);
    cluster.progress(5, 41);
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    cluster.progress(3, 41);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
}

#[test]
fn the_case_survives_a_restart_of_the_controller() {
    let mut cluster = standing(RULES, &[5]);
    let stored = serde_json::to_string(&cluster.state).expect("it is plain data");
    cluster.state = serde_json::from_str::<DecisionState>(&stored).expect("it was written above");
    cluster.tell(Event::ControllerStarted);
    assert_eq!(opened(&cluster), [CaseId(1)]);
    cluster.progress(5, 41);
    assert_eq!(opened(&cluster), []);
}

#[test]
fn the_end_of_its_job_closes_the_case() {
    let mut cluster = standing(RULES, &[5]);
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(opened(&cluster), []);
    assert!(
        outcome(&cluster).contains("; the job was stopped: "),
        "{}",
        outcome(&cluster)
    );
}

#[test]
fn a_rank_that_ended_stands_no_more_although_its_job_waits_for_nodes() {
    let mut cluster = standing(RULES, &[5]);
    cluster.tell(Event::NodeCordoned {
        node: node(3),
        reason: "fan".to_owned(),
    });
    let exit = EvidenceBody::RankExited {
        pid: 5,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(5, exit, Vec::new());
    assert_eq!(cluster.cases()[0].state, CaseState::Closed);
    assert!(outcome_of_first(&cluster).contains("; rank 5 ended at "));
    cluster.wait(Duration::from_secs(30));
    assert_eq!(opened(&cluster), [CaseId(2)], "the job waits for a node");
}

#[test]
fn a_restart_of_the_ranks_ends_the_standing_of_one() {
    let mut cluster = standing(RULES, &[5]);
    let exit = EvidenceBody::RankExited {
        pid: 2,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(2, exit, Vec::new());
    cluster.wait(Duration::from_secs(60));
    let first = cluster.cases()[0].clone();
    assert_eq!(first.state, CaseState::Closed);
    let outcome = first.outcome.unwrap_or_default();
    assert!(
        outcome.contains("; the ranks of the job start again, generation 2 at "),
        "{outcome}"
    );
}

fn closes(cluster: &mut Cluster, by: &str, text: &str) {
    let note = CaseNote {
        at: Timestamp::default(),
        by: by.to_owned(),
        kind: CaseNoteKind::Closed,
        text: text.to_owned(),
    };
    cluster.tell(Event::CaseNoted { case: CaseId(1), note });
}

#[test]
fn an_operator_closes_a_case_that_nothing_else_would_close() {
    let mut cluster = standing(RULES, &[5]);
    closes(&mut cluster, "ada", "rank 5 only logs");
    assert_eq!(opened(&cluster), []);
    let ends = outcome(&cluster);
    assert!(ends.contains("; ada closed the case: rank 5 only logs at "), "{ends}");
    // A note on a closed case closes nothing again.
    closes(&mut cluster, "bob", "");
    assert_eq!(outcome(&cluster), ends);
}

fn save_fails(cluster: &mut Cluster, rank: u32, step: u64) {
    let entity = Entity::Rank {
        job: job(),
        generation: cluster.generation(),
        rank: Rank(rank),
        node: node(rank / 2),
    };
    let body = EvidenceBody::ShardFailed {
        step: Step(step),
        reason: "no space left on device".to_owned(),
    };
    let marks = vec![mark("disk-full", Role::Root, "checkpoint-store")];
    cluster.report(node(rank / 2), EvidenceSource::Checkpoint, entity, body, marks);
}

fn commits(cluster: &mut Cluster, step: u64) {
    cluster.tell(Event::ManifestCommitted {
        job: job(),
        step: Step(step),
        generation: cluster.generation(),
        differing: Vec::new(),
        per_rank: Vec::new(),
        same_size: Vec::new(),
    });
}

#[test]
fn a_full_disk_keeps_one_case_open_until_a_later_checkpoint_is_committed() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    // Each wait is longer than the window of a concluded failure.
    for step in [50, 60, 70] {
        save_fails(&mut cluster, 3, step);
        for second in 0..1_200 {
            cluster.progress(0, step * 1_000 + second);
            cluster.wait(Duration::from_secs(1));
        }
        assert_eq!(opened(&cluster), [CaseId(1)], "{:#?}", cluster.cases());
    }
    // An earlier checkpoint may have been on its way.
    commits(&mut cluster, 40);
    assert_eq!(opened(&cluster), [CaseId(1)]);
    commits(&mut cluster, 80);
    assert_eq!(opened(&cluster), []);
    let ends = cluster.cases()[0].outcome.clone().unwrap_or_default();
    assert!(ends.contains("; the checkpoint of step 80 was committed at "), "{ends}");
}

#[test]
fn a_disk_that_is_full_again_opens_its_case_again() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    save_fails(&mut cluster, 3, 50);
    cluster.wait(Duration::from_secs(20));
    commits(&mut cluster, 60);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    save_fails(&mut cluster, 3, 70);
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    assert_eq!(
        outcome(&cluster),
        "the failure was reported again, and nothing was restarted"
    );
    closes(&mut cluster, "ada", "");
    save_fails(&mut cluster, 3, 80);
    assert_eq!(only_case(&cluster).state, CaseState::Closed, "an operator accepted it");
}

#[test]
fn a_save_that_failed_once_is_over_with_the_next_commit() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    save_fails(&mut cluster, 3, 50);
    commits(&mut cluster, 60);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
}

/// A GPU of node 1 falls off the bus.
fn loses_gpu(cluster: &mut Cluster) {
    let gpu = device(node(1), DeviceKind::Gpu, "0000:3b:00");
    let text = line("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
    let lost = vec![mark("gpu-fallen-off-bus", Role::Root, "xid-79")];
    cluster.report(node(1), EvidenceSource::KernelLog, gpu, text, lost);
    cluster.wait(Duration::from_secs(8));
}

/// Returns the class of the newest case, and true if evidence of a full disk is part of it.
fn newest_class(cluster: &Cluster) -> (String, bool) {
    let cases = cluster.cases();
    let newest = cases.last().expect("a failure was reported");
    let has_disk = newest
        .findings
        .iter()
        .any(|finding| finding.class.as_str() == "disk-full");
    (newest.verdict.class.to_string(), has_disk)
}

#[test]
fn a_store_that_kept_a_later_checkpoint_is_no_part_of_a_later_failure() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    for rank in [2, 3, 5] {
        save_fails(&mut cluster, rank, 50);
    }
    cluster.wait(Duration::from_secs(20));
    commits(&mut cluster, 60);
    cluster.wait(Duration::from_secs(11));
    loses_gpu(&mut cluster);
    assert_eq!(newest_class(&cluster), ("gpu-fallen-off-bus".to_owned(), false));
    assert_eq!(cluster.cases().len(), 2, "{:#?}", cluster.cases());
}

#[test]
fn a_store_without_a_later_checkpoint_is_part_of_a_later_failure() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    save_fails(&mut cluster, 3, 50);
    cluster.wait(Duration::from_secs(20));
    // An earlier checkpoint was on its way.
    commits(&mut cluster, 40);
    loses_gpu(&mut cluster);
    let all: Vec<_> = cluster.cases().into_iter().flat_map(|case| &case.findings).collect();
    let full = all.iter().filter(|finding| finding.class.as_str() == "disk-full");
    assert_eq!(full.count(), 2, "{:#?}", cluster.cases());
}

/// The store is full, and a GPU is lost beside it: the case of the store restarts nothing.
#[test]
fn a_job_leaves_a_node_that_lost_a_gpu_beside_another_failure() {
    let generation = |rules: u32| {
        let policy = Policy {
            rules,
            ..Policy::default()
        };
        let mut cluster = Cluster::checkpointed(policy, CheckpointTiers::default());
        save_fails(&mut cluster, 5, 50);
        cluster.wait(Duration::from_secs(20));
        loses_gpu(&mut cluster);
        cluster.obey();
        let is_left = !cluster.state.jobs()[&job()].nodes().contains(&node(1));
        let case = cluster
            .cases()
            .into_iter()
            .find(|case| case.verdict.class.as_str() == "gpu-fallen-off-bus");
        let state = case.map(|case| case.state);
        (cluster.generation().0, is_left, state)
    };
    assert_eq!(generation(RULES), (2, true, Some(CaseState::Recovering)));
}

fn nodes(cluster: &Cluster) -> &[NodeId] {
    cluster.state.jobs()[&job()].nodes()
}

/// A link of node 1 goes down, and then rank 2 there ends. Node 4 is free.
fn ends_by_link() -> Cluster {
    let mut cluster = Cluster::running(Policy::default());
    let known = cluster.state.fleet().get(&node(0)).expect("it joined");
    let info = NodeInfo {
        node: node(4),
        ..known.info.clone()
    };
    cluster.tell(Event::NodeJoined { info });
    link_changes(&mut cluster, "mlx5_0", false);
    let exit = EvidenceBody::RankExited {
        pid: 2,
        exit: ProcessExit::Code(1),
        ended_by_agent: false,
    };
    cluster.rank_says(2, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    cluster.obey();
    cluster
}

/// Returns true if node 1 takes the place of a node that is cordoned, after this change of its link.
fn is_used_again(change: impl FnOnce(&mut Cluster)) -> bool {
    let mut cluster = ends_by_link();
    for _ in 0..3 {
        cluster.obey();
    }
    change(&mut cluster);
    let failing = Event::NodeCordoned {
        node: node(4),
        reason: "maintenance".to_owned(),
    };
    cluster.tell(failing);
    let exit = EvidenceBody::RankExited {
        pid: 2,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(7, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    nodes(&cluster).contains(&node(1))
}

#[test]
fn a_link_that_is_up_again_keeps_no_job_away() {
    assert!(is_used_again(|cluster| link_changes(cluster, "mlx5_0", true)));
}

#[test]
fn a_job_that_needs_every_node_starts_on_one_with_a_link_that_is_down() {
    assert!(is_used_again(|_| ()));
}

#[test]
fn a_file_system_with_space_again_is_no_part_of_a_later_failure() {
    let mut cluster = Cluster::running(Policy::default());
    space(&mut cluster, 1, 0.0);
    cluster.wait(Duration::from_secs(30));
    space(&mut cluster, 1, 0.5);
    cluster.wait(Duration::from_secs(11));
    loses_gpu(&mut cluster);
    assert_eq!(newest_class(&cluster), ("gpu-fallen-off-bus".to_owned(), false));
}

#[test]
fn a_link_keeps_its_case_open_while_it_is_down() {
    let mut cluster = Cluster::running(Policy::default());
    let down = vec![mark("nic-link-down", Role::Root, "nic.link-down")];
    let link = device(node(1), DeviceKind::Nic, "mlx5_0");
    let source = EvidenceSource::KernelLog;
    cluster.report(node(1), source, link.clone(), line("mlx5_0: link is down"), down);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    let up = EvidenceBody::Sample {
        metric: "nic.operstate_up".to_owned(),
        value: 1.0,
        unit: String::new(),
    };
    cluster.report(node(1), EvidenceSource::Nic, link, up, Vec::new());
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert_eq!(
        outcome(&cluster).matches("the link was up again").count(),
        1,
        "{}",
        outcome(&cluster)
    );
}

fn kernel_line(cluster: &mut Cluster, number: u32, text: &str, class: Classification) {
    let entity = Entity::Node { node: node(number) };
    cluster.report(node(number), EvidenceSource::KernelLog, entity, line(text), vec![class]);
}

fn with(mut mark: Classification, fields: &[(&str, &str)]) -> Classification {
    for (name, value) in fields {
        mark.fields.insert((*name).to_owned(), (*value).to_owned());
    }
    mark
}

fn reason_of(cluster: &Cluster, number: u32) -> String {
    let status = cluster.state.status(cluster.now);
    let view = status.nodes.into_iter().find(|view| view.node == node(number));
    view.and_then(|view| view.reason).unwrap_or_default()
}

/// All ranks wait for a server until an operator cancels their job.
#[test]
fn a_server_that_does_not_answer_keeps_its_case_open_until_it_does() {
    let mut cluster = Cluster::running(Policy::default());
    let waits = |server| {
        with(
            mark("filesystem-hang", Role::Root, "nfs-not-responding"),
            &[("server", server)],
        )
    };
    let back = |server| with(mark("none", Role::Noise, "nfs-ok"), &[("server", server)]);
    kernel_line(
        &mut cluster,
        1,
        "nfs: server nas1 not responding, still trying",
        waits("nas1"),
    );
    let since = cluster.now;
    cluster.wait(Duration::from_secs(31));
    (0..8).for_each(|rank| reports_stall(&mut cluster, rank));
    cluster.wait(Duration::from_secs(10));
    assert_eq!(only_case(&cluster).verdict.class.as_str(), "filesystem-hang");
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    assert!(reason_of(&cluster, 1).ends_with(&format!("the server nas1 has not answered since {since}")));
    kernel_line(&mut cluster, 1, "nfs: server nas2 OK", back("nas2"));
    kernel_line(&mut cluster, 2, "nfs: server nas1 OK", back("nas1"));
    assert_eq!(
        only_case(&cluster).state,
        CaseState::FaultPresent,
        "the server has not answered"
    );
    kernel_line(&mut cluster, 1, "nfs: server nas1 OK", back("nas1"));
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert!(
        outcome(&cluster).contains("; the server nas1 answers again at "),
        "{}",
        outcome(&cluster)
    );
    assert!(!reason_of(&cluster, 1).contains("nas1"));
}

fn space(cluster: &mut Cluster, number: u32, value: f64) {
    let metric = "host.disk_available /tmp";
    let is_low = value < 0.02;
    let marks = is_low.then(|| mark("disk-full", Role::Confirmation, metric));
    let body = EvidenceBody::Sample {
        metric: metric.to_owned(),
        value,
        unit: "ratio".to_owned(),
    };
    let entity = Entity::Node { node: node(number) };
    cluster.report(
        node(number),
        EvidenceSource::Host,
        entity,
        body,
        marks.into_iter().collect(),
    );
}

#[test]
fn a_full_disk_of_a_node_keeps_its_case_open_until_it_has_space() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    space(&mut cluster, 2, 0.0);
    save_fails(&mut cluster, 4, 50);
    cluster.wait(Duration::from_secs(20));
    commits(&mut cluster, 60);
    assert_eq!(
        only_case(&cluster).state,
        CaseState::FaultPresent,
        "{:#?}",
        cluster.cases()
    );
    assert!(reason_of(&cluster, 2).starts_with("the file system /tmp has had little or no space left since "));
    space(&mut cluster, 2, 0.5);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert!(
        outcome(&cluster).contains("; the file system /tmp has space again at "),
        "{}",
        outcome(&cluster)
    );
    assert_eq!(reason_of(&cluster, 2), "");
}

#[test]
fn a_cable_is_shown_while_it_is_unplugged() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(1));
    let cable = |role, class: &str, signature: &str, module: &str| {
        with(
            mark(class, role, signature),
            &[("bdf", "0000:5e:00.0"), ("module", module)],
        )
    };
    let text = "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged";
    let unplugged = cable(Role::Confirmation, "nic-link-down", "mlx5-unplugged", "0");
    kernel_line(&mut cluster, 1, text, unplugged);
    let wanted = "the cable of module 0 of adapter 0000:5e:00.0 has been unplugged since ";
    assert!(reason_of(&cluster, 1).starts_with(wanted), "{}", reason_of(&cluster, 1));
    kernel_line(
        &mut cluster,
        1,
        "other",
        cable(Role::Noise, "none", "mlx5-plugged", "1"),
    );
    assert_ne!(reason_of(&cluster, 1), "");
    kernel_line(
        &mut cluster,
        1,
        "plugged",
        cable(Role::Noise, "none", "mlx5-plugged", "0"),
    );
    assert_eq!(reason_of(&cluster, 1), "");
    // A link that is up has its cable; the cable of another adapter is another one.
    let up = |port: &str| {
        with(
            mark("none", Role::Noise, "nic-link-up"),
            &[("bdf", port), ("nic", "ens1f0np0")],
        )
    };
    let unplugged = cable(Role::Confirmation, "nic-link-down", "mlx5-unplugged", "0");
    kernel_line(&mut cluster, 1, text, unplugged);
    kernel_line(
        &mut cluster,
        1,
        "mlx5_core 0000:9a:00.0 ens2: Link up",
        up("0000:9a:00.0"),
    );
    assert_ne!(reason_of(&cluster, 1), "");
    kernel_line(
        &mut cluster,
        1,
        "mlx5_core 0000:5e:00.0 ens1f0np0: Link up",
        up("0000:5e:00.0"),
    );
    assert_eq!(reason_of(&cluster, 1), "");
    // An operator accepts the node as it is.
    let unplugged = cable(Role::Confirmation, "nic-link-down", "mlx5-unplugged", "0");
    kernel_line(&mut cluster, 1, text, unplugged);
    assert_ne!(reason_of(&cluster, 1), "");
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    assert_eq!(reason_of(&cluster, 1), "");
}

fn link_changes(cluster: &mut Cluster, nic: &str, is_up: bool) {
    let link = device(node(1), DeviceKind::Nic, nic);
    let (text, change) = if is_up {
        ("Link up", mark("none", Role::Noise, "nic-link-up"))
    } else {
        ("Link down", mark("nic-link-down", Role::Root, "nic-link-down"))
    };
    let text = line(&format!("mlx5_core 0000:5e:00.0 {nic}: {text}"));
    cluster.report(node(1), EvidenceSource::KernelLog, link, text, vec![change]);
}

fn slave_lost(cluster: &mut Cluster, nic: &str) {
    let link = device(node(1), DeviceKind::Nic, nic);
    let lost = mark("nic-link-down", Role::Root, "bond-slave-down");
    let text = line(&format!(
        "bond0: (slave {nic}): link status definitely down, disabling slave"
    ));
    cluster.report(node(1), EvidenceSource::KernelLog, link, text, vec![lost]);
}

/// Both links of a bond go down one after the other, and their reports follow after the verdicts.
#[test]
fn a_bond_that_loses_its_links_is_one_open_case() {
    let mut cluster = Cluster::running(Policy::default());
    for nic in ["ens1f0", "ens1f1"] {
        link_changes(&mut cluster, nic, false);
        cluster.wait(Duration::from_millis(400));
        slave_lost(&mut cluster, nic);
        cluster.wait(Duration::from_secs(8));
        slave_lost(&mut cluster, nic);
        cluster.wait(Duration::from_secs(20));
    }
    assert_eq!(opened(&cluster), [CaseId(1)], "{:#?}", cluster.cases());
    let links = |case: &Case| case.findings.iter().filter_map(|finding| finding.entity.node()).count();
    assert!(links(cluster.cases()[0]) >= 4, "{:#?}", cluster.cases()[0]);
    let blamed = cluster.cases()[0].verdict.blamed.to_string();
    let (first, other) = if blamed.ends_with("ens1f0") {
        ("ens1f0", "ens1f1")
    } else {
        ("ens1f1", "ens1f0")
    };
    link_changes(&mut cluster, first, true);
    assert_eq!(opened(&cluster), [CaseId(1)], "the other link is down");
    let now = cluster.now;
    let wanted = format!("; the link was up again at {now}, and the link of node node-1, nic {other} was still down");
    let outcome = outcome_of_first(&cluster);
    assert!(outcome.ends_with(&wanted), "{blamed}: {outcome}");
    cluster.wait(Duration::from_secs(5));
    link_changes(&mut cluster, other, true);
    assert_eq!(opened(&cluster), []);
    let now = cluster.now;
    let wanted = format!("; the link of node node-1, nic {other} was up again at {now}");
    let outcome = outcome_of_first(&cluster);
    assert!(outcome.ends_with(&wanted), "{outcome}");
}

/// A job that a full disk has stopped leaves the disk full.
#[test]
fn a_full_disk_that_stopped_its_job_is_present_until_it_has_space() {
    let mut cluster = Cluster::new(Policy::default());
    let spec = JobSpec {
        max_restarts: 0,
        ..cluster.spec(4, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    cluster.obey();
    space(&mut cluster, 2, 0.0);
    let full = mark("disk-full", Role::Root, "enospc");
    let text = line("OSError: [Errno 28] No space left on device: '/tmp/x'");
    cluster.rank_says(4, text, vec![full]);
    let exit = EvidenceBody::RankExited {
        pid: 4,
        exit: ProcessExit::Code(1),
        ended_by_agent: false,
    };
    cluster.rank_says(4, exit, Vec::new());
    cluster.wait(Duration::from_secs(20));
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(
        only_case(&cluster).state,
        CaseState::FaultPresent,
        "{:#?}",
        cluster.cases()
    );
    assert!(
        outcome(&cluster).starts_with("the job was stopped: "),
        "{}",
        outcome(&cluster)
    );
    space(&mut cluster, 2, 0.5);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
}

/// A switch that fails takes the links of several nodes: the case blames none of them.
#[test]
fn links_of_several_nodes_keep_their_case_open_until_all_are_up() {
    let mut cluster = Cluster::running(Policy::default());
    let change = |cluster: &mut Cluster, number: u32, is_up: bool| {
        let link = device(node(number), DeviceKind::Nic, "ibs2");
        let (text, change) = if is_up {
            ("Link up", mark("none", Role::Noise, "nic-link-up"))
        } else {
            ("Link down", mark("nic-link-down", Role::Root, "nic-link-down"))
        };
        let text = line(&format!("mlx5_core 0000:9a:00.0 ibs2: {text}"));
        cluster.report(node(number), EvidenceSource::KernelLog, link, text, vec![change]);
    };
    (0..3).for_each(|number| change(&mut cluster, number, false));
    cluster.wait(Duration::from_secs(20));
    assert_eq!(
        only_case(&cluster).state,
        CaseState::FaultPresent,
        "{:#?}",
        cluster.cases()
    );
    change(&mut cluster, 0, true);
    change(&mut cluster, 1, true);
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    change(&mut cluster, 2, true);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    let ends = outcome(&cluster);
    assert!(
        ends.ends_with('Z') && !ends.contains("Z at "),
        "one time for one event: {ends}"
    );
}

/// Reports a change of a link that a drill injects.
fn drilled_link(cluster: &mut Cluster, is_up: bool) {
    let link = device(node(1), DeviceKind::Nic, "mlx5_0");
    let (text, change) = if is_up {
        ("ACTIVE", mark("none", Role::Noise, "nic-link-up"))
    } else {
        ("DOWN", mark("nic-link-down", Role::Root, "nic-link-down"))
    };
    let text = line(&format!("infiniband mlx5_0: Port: 1 Link {text}"));
    cluster.report_as(true, node(1), EvidenceSource::KernelLog, link, (text, vec![change]));
}

#[test]
fn a_drilled_link_keeps_its_case_open_and_its_node_in_use() {
    let mut cluster = Cluster::running(Policy::default());
    drilled_link(&mut cluster, false);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    assert!(only_case(&cluster).is_synthetic());
    assert_eq!(reason_of(&cluster, 1), "");
    drilled_link(&mut cluster, true);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert!(
        outcome(&cluster).contains("the link was up again"),
        "{}",
        outcome(&cluster)
    );
}

#[test]
fn links_of_different_media_share_no_part() {
    let mut cluster = Cluster::running(Policy::default());
    for (number, nic, text) in [
        (1, "eth2", "mlx5_core 0000:3b:00.0 eth2: Link down"),
        (0, "mlx5_1", "infiniband mlx5_1: Port: 1 Link DOWN"),
    ] {
        let link = device(node(number), DeviceKind::Nic, nic);
        let down = vec![mark("nic-link-down", Role::Root, "nic-link-down")];
        cluster.report(node(number), EvidenceSource::KernelLog, link, line(text), down);
    }
    cluster.wait(Duration::from_secs(60));
    let mut blamed: Vec<String> = cluster.cases().iter().map(|case| case.blamed_text()).collect();
    blamed.sort();
    assert_eq!(blamed, ["node node-0, nic mlx5_1", "node node-1, nic eth2"]);
}
