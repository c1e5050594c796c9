//! Failed starts of ranks: a node on which they fail while they work on others is at fault, not the job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy};
use rankguard_model::{
    AgentOrder, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues, JobSpec, NodeId, NodeRange,
    OrderId, ProcessExit, Rank, Role, STATE_DIR_FULL, STATE_DIR_HAS_ROOM,
};

use crate::cluster::{Cluster, job, node};

const NO_WORKDIR: &str = "the working directory /mnt/x does not exist on node node-1";
const NO_PROGRAM: &str = "the command `trian` was not found on node node-0 (PATH is /bin)";

fn submit(cluster: &mut Cluster, min: u32, max: u32) {
    let spec = JobSpec {
        id: job(),
        command: vec!["train".to_owned()],
        env: BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min, max },
        ranks_per_node: 1,
        checkpoint: None,
        max_restarts: 3,
        user: None,
        resume_from: None,
        standby: None,
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
}

/// Carries out all orders; starts fail on some nodes.
fn obey(cluster: &mut Cluster, bad: &[(u32, &str)]) {
    let refuses = |at: &NodeId| {
        bad.iter()
            .find(|(number, _)| node(*number) == *at)
            .map(|(_, reason)| *reason)
    };
    for _ in 0..4 {
        for (at, order) in std::mem::take(&mut cluster.orders) {
            let entity = Entity::Node { node: at.clone() };
            match order {
                AgentOrder::Fence {
                    job,
                    generation,
                    reserve_port,
                    ..
                } => {
                    let body = EvidenceBody::Fenced {
                        job,
                        generation,
                        master_port: reserve_port.then_some(29_500),
                        ended: 0,
                        left: Vec::new(),
                    };
                    cluster.report(at, EvidenceSource::Agent, entity, body, Vec::new());
                }
                AgentOrder::Launch(launch) if refuses(&at).is_some() => {
                    let body = EvidenceBody::OrderFailed {
                        order: OrderId(1),
                        job: launch.job.clone(),
                        generation: launch.generation,
                        reason: refuses(&at).unwrap_or_default().to_owned(),
                        newest: None,
                    };
                    let entity = Entity::Job { job: launch.job };
                    cluster.report(at, EvidenceSource::Agent, entity, body, Vec::new());
                }
                AgentOrder::Launch(launch) => {
                    for slot in &launch.ranks {
                        let entity = Entity::Rank {
                            job: launch.job.clone(),
                            generation: launch.generation,
                            rank: slot.rank,
                            node: at.clone(),
                        };
                        let body = EvidenceBody::RankStarted {
                            pid: 1,
                            from_standby: false,
                        };
                        cluster.report(at.clone(), EvidenceSource::Ranks, entity, body, Vec::new());
                    }
                }
                _ => {}
            }
        }
    }
}

/// Carries out orders and lets the failures be concluded, several times.
fn settle(cluster: &mut Cluster, bad: &[(u32, &str)]) {
    for _ in 0..4 {
        obey(cluster, bad);
        cluster.wait(Duration::from_secs(5));
    }
}

fn stop_reason(cluster: &Cluster) -> String {
    match cluster.state.jobs()[&job()].phase() {
        JobPhase::Stopped { reason } => reason.clone(),
        other => panic!("{other:?}"),
    }
}

fn is_started_on(cluster: &Cluster, nodes: &[u32]) {
    let job = &cluster.state.jobs()[&job()];
    assert!(matches!(job.phase(), JobPhase::Starting), "{:?}", job.phase());
    let nodes: Vec<NodeId> = nodes.iter().map(|number| node(*number)).collect();
    assert_eq!(job.nodes(), nodes);
}

#[test]
fn a_node_on_which_ranks_do_not_start_is_blamed_and_replaced() {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 2, 2);
    settle(&mut cluster, &[(1, NO_WORKDIR)]);
    is_started_on(&cluster, &[0, 2]);
    let cases = cluster.cases();
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].verdict.blamed, Entity::Node { node: node(1) });
    assert_eq!(cases[0].verdict.class.as_str(), "filesystem-mount-missing");
}

#[test]
fn a_job_that_needs_no_replacement_goes_on_without_the_node() {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 1, 4);
    settle(&mut cluster, &[(1, NO_WORKDIR)]);
    is_started_on(&cluster, &[0, 2, 3]);
}

#[test]
fn a_job_on_one_node_is_tried_on_another_and_the_case_is_revised() {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 1, 1);
    settle(&mut cluster, &[(0, NO_WORKDIR)]);
    is_started_on(&cluster, &[1]);
    assert_eq!(cluster.cases()[0].verdict.blamed, Entity::Node { node: node(0) });
}

#[test]
fn a_command_that_starts_on_no_node_stops_the_job() {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 1, 1);
    let everywhere: Vec<(u32, &str)> = (0..4).map(|number| (number, NO_PROGRAM)).collect();
    settle(&mut cluster, &everywhere);
    let reason = stop_reason(&cluster);
    assert!(
        reason.contains("start on none of the 2 nodes that were tried (node-0 node-1)"),
        "{reason}"
    );
    let job = Entity::Job { job: job() };
    assert!(cluster.cases().iter().all(|case| case.verdict.blamed == job));
    // All nodes of a larger job fail at once.
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 4, 4);
    settle(&mut cluster, &everywhere);
    assert!(stop_reason(&cluster).contains("4 nodes"));
    assert_eq!(cluster.generation().0, 1);
}

#[test]
fn without_another_node_the_job_waits_for_the_node_at_fault() {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 4, 4);
    settle(&mut cluster, &[(1, NO_WORKDIR)]);
    let JobPhase::Pending { missing, .. } = cluster.state.jobs()[&job()].phase() else {
        panic!("{:?}", cluster.state.jobs()[&job()].phase());
    };
    assert!(
        missing.contains("without node-1, where its ranks did not start"),
        "{missing}"
    );
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    settle(&mut cluster, &[]);
    is_started_on(&cluster, &[0, 1, 2, 3]);
}

#[test]
fn older_journals_replay_the_stop() {
    let mut cluster = Cluster::new(Policy {
        rules: 4,
        ..Policy::default()
    });
    submit(&mut cluster, 2, 2);
    settle(&mut cluster, &[(1, NO_WORKDIR)]);
    assert!(stop_reason(&cluster).contains("the same command cannot start"));
    assert_eq!(cluster.cases()[0].verdict.class.as_str(), "invalid-job-spec");
}

/// Lets the longest wait for nodes pass, and more.
fn wait_for_nodes(cluster: &mut Cluster, bad: &[(u32, &str)]) {
    for _ in 0..Policy::default().pending_ms / 5_000 + 4 {
        obey(cluster, bad);
        cluster.wait(Duration::from_secs(5));
    }
}

/// What was wrong on the node may be over.
#[test]
fn a_node_on_which_ranks_did_not_start_is_tried_once_more_before_the_job_is_stopped() {
    let waiting = || {
        let mut cluster = Cluster::new(Policy::default());
        submit(&mut cluster, 4, 4);
        settle(&mut cluster, &[(1, NO_WORKDIR)]);
        cluster
    };
    let mut cluster = waiting();
    wait_for_nodes(&mut cluster, &[]);
    let job_nodes = cluster.state.jobs()[&job()].nodes();
    assert_eq!(job_nodes, [0, 1, 2, 3].map(node));
    assert!(!cluster.state.jobs()[&job()].is_over());
    // It is still so.
    let mut cluster = waiting();
    wait_for_nodes(&mut cluster, &[(1, NO_WORKDIR)]);
    assert!(!cluster.state.jobs()[&job()].is_over());
    wait_for_nodes(&mut cluster, &[(1, NO_WORKDIR)]);
    let reason = stop_reason(&cluster);
    assert!(
        reason.contains("without node-1, where its ranks did not start"),
        "{reason}"
    );
}

fn reports_room(cluster: &mut Cluster, number: u32, signature: &str, class: &str, role: Role) {
    let mark = Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.5,
        signature: signature.into(),
        fields: FieldValues::new(),
    };
    let body = EvidenceBody::Line {
        text: "the state directory of the agent".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    let entity = Entity::Node { node: node(number) };
    cluster.report(node(number), EvidenceSource::Host, entity, body, vec![mark]);
}

fn reason(cluster: &Cluster, number: u32) -> String {
    let status = cluster.state.status(cluster.now);
    let view = status.nodes.into_iter().find(|view| view.node == node(number));
    view.expect("it is known").reason.unwrap_or_default()
}

#[test]
fn a_node_with_a_full_agent_is_shown_and_takes_no_job_until_it_has_room() {
    let mut cluster = Cluster::new(Policy::default());
    reports_room(&mut cluster, 1, STATE_DIR_FULL, "disk-full", Role::Confirmation);
    let shown = reason(&cluster, 1);
    assert!(
        shown.contains("the state directory of its agent has been full since"),
        "{shown}"
    );
    assert!(shown.contains("takes no work"), "{shown}");
    submit(&mut cluster, 4, 4);
    settle(&mut cluster, &[]);
    assert!(cluster.state.jobs()[&job()].is_pending());
    reports_room(&mut cluster, 1, STATE_DIR_HAS_ROOM, "none", Role::Noise);
    settle(&mut cluster, &[]);
    is_started_on(&cluster, &[0, 1, 2, 3]);
    assert_eq!(reason(&cluster, 1), "");
    assert!(cluster.cases().is_empty(), "{:#?}", cluster.cases());
}

/// The start failed for the full directory.
#[test]
fn a_node_that_has_room_again_is_tried_at_once() {
    const FULL: &str = "the fence cannot be written: No space left on device (os error 28)";
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, 4, 4);
    settle(&mut cluster, &[(1, FULL)]);
    reports_room(&mut cluster, 1, STATE_DIR_FULL, "disk-full", Role::Confirmation);
    settle(&mut cluster, &[(1, FULL)]);
    reports_room(&mut cluster, 1, STATE_DIR_HAS_ROOM, "none", Role::Noise);
    settle(&mut cluster, &[]);
    is_started_on(&cluster, &[0, 1, 2, 3]);
}

/// The rank on one of these nodes finds no file; returns true if the job has one there.
fn finds_no_file(cluster: &mut Cluster, on: &[u32]) -> bool {
    let job_state = &cluster.state.jobs()[&job()];
    let placed = job_state
        .nodes()
        .iter()
        .position(|at| on.iter().any(|number| node(*number) == *at));
    let (Some(rank), generation) = (placed, job_state.generation()) else {
        return false;
    };
    let at = job_state.nodes()[rank].clone();
    let entity = Entity::Rank {
        job: job(),
        generation,
        rank: Rank(u32::try_from(rank).expect("few ranks")),
        node: at.clone(),
    };
    let lacks = Classification {
        class: ClassId::from("file-not-found"),
        role: Role::Root,
        confidence: 0.9,
        signature: "python-file-not-found".into(),
        fields: FieldValues::new(),
    };
    let text = EvidenceBody::Line {
        text: "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(at.clone(), EvidenceSource::JobLog, entity.clone(), text, vec![lacks]);
    let exit = EvidenceBody::RankExited {
        pid: 7,
        exit: ProcessExit::Code(1),
        ended_by_agent: false,
    };
    cluster.report(at, EvidenceSource::Ranks, entity, exit, Vec::new());
    settle(cluster, &[]);
    obey(cluster, &[]);
    true
}

fn lacking_file(min: u32, max: u32, on: &[u32]) -> Cluster {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, min, max);
    obey(&mut cluster, &[]);
    for _ in 0..4 {
        if !finds_no_file(&mut cluster, on) {
            break;
        }
    }
    cluster
}

#[test]
fn a_node_on_which_alone_a_file_lacks_is_left() {
    // A spare takes its place, or the job shrinks.
    is_started_on(&lacking_file(3, 3, &[1]), &[0, 3, 2]);
    is_started_on(&lacking_file(3, 4, &[1]), &[0, 2, 3]);
}

#[test]
fn a_file_that_lacks_on_two_nodes_stops_the_job() {
    let reason = stop_reason(&lacking_file(3, 3, &[1, 3]));
    let wanted =
        "the same failure came back on each of the 2 nodes that were tried (node-1 node-3), so it is not retried again";
    assert!(reason.contains(wanted), "{reason}");
}

#[test]
fn without_another_node_the_stop_names_the_nodes_without_the_failure() {
    let reason = stop_reason(&lacking_file(4, 4, &[1]));
    let wanted = "came back on node-1, the ranks on node-0 node-2 node-3 did not report it, and no other node is free";
    assert!(reason.contains(wanted), "{reason}");
}

fn rank_reports(
    cluster: &mut Cluster,
    rank: u32,
    source: EvidenceSource,
    body: EvidenceBody,
    mark: Option<Classification>,
) {
    let entity = Entity::Rank {
        job: job(),
        generation: cluster.state.jobs()[&job()].generation(),
        rank: Rank(rank),
        node: node(rank),
    };
    cluster.report(node(rank), source, entity, body, mark.into_iter().collect());
}

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

/// The program lacks on nodes; the other ranks of nodes 0 to 2 write output.
fn runs_without_program(policy: Policy, most: u32, lacking: &[u32]) -> Cluster {
    let mark = |class: &str, role, signature: &str, state: &str| Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.9,
        signature: signature.into(),
        fields: [("state", state.to_owned())].into(),
    };
    let mut cluster = Cluster::new(policy);
    submit(&mut cluster, 2, most);
    settle(&mut cluster, &[]);
    for rank in 0..3 {
        if !lacking.contains(&rank) {
            let writes = mark("none", Role::Noise, "ranks.activity", "output");
            rank_reports(&mut cluster, rank, EvidenceSource::Ranks, line("output"), Some(writes));
            continue;
        }
        let text = "python3: can't open file '/srv/train.py': [Errno 2] No such file or directory";
        let lacks = mark("file-not-found", Role::Root, "file-not-found", "");
        rank_reports(&mut cluster, rank, EvidenceSource::JobLog, line(text), Some(lacks));
        let exit = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Code(2),
            ended_by_agent: false,
        };
        rank_reports(&mut cluster, rank, EvidenceSource::Ranks, exit, None);
    }
    cluster.wait(Duration::from_secs(10));
    settle(&mut cluster, &[]);
    cluster
}

#[test]
fn a_node_that_lacks_the_program_of_a_job_is_replaced_if_other_nodes_have_it() {
    let cluster = runs_without_program(Policy::default(), 3, &[2]);
    let case = cluster.cases()[0].clone();
    assert_eq!(case.verdict.blamed, Entity::Node { node: node(2) }, "{case:#?}");
    is_started_on(&cluster, &[0, 1, 3]);
    // The job goes on with the nodes that are left.
    is_started_on(&runs_without_program(Policy::default(), 4, &[2]), &[0, 1, 3]);
    // The program lacks on every node that ran it.
    let cluster = runs_without_program(Policy::default(), 3, &[0, 1, 2]);
    is_started_on(&cluster, &[0, 1, 2]);
    let older = Policy {
        rules: 7,
        ..Policy::default()
    };
    is_started_on(&runs_without_program(older, 3, &[2]), &[0, 1, 2]);
}

/// All ranks of these nodes find no data; the ranks of the other nodes write output.
fn lacks_data(cluster: &mut Cluster, on: &[u32]) {
    let lacks = Classification {
        class: ClassId::from("data-missing"),
        role: Role::Root,
        confidence: 0.9,
        signature: "data-missing".into(),
        fields: FieldValues::new(),
    };
    let text = "FileNotFoundError: [Errno 2] No such file or directory: '/data/shards/part-000.tar'";
    let places = cluster.state.status(cluster.now).jobs.remove(0).placements;
    let affected: Vec<(Rank, NodeId)> = places
        .into_iter()
        .map(|place| (place.rank, place.node))
        .filter(|(_, at)| on.iter().any(|number| node(*number) == *at))
        .collect();
    for (rank, at) in affected {
        let entity = Entity::Rank {
            job: job(),
            generation: cluster.generation(),
            rank,
            node: at.clone(),
        };
        let marks = vec![lacks.clone()];
        cluster.report(at.clone(), EvidenceSource::JobLog, entity.clone(), line(text), marks);
        let exit = EvidenceBody::RankExited {
            pid: rank.0,
            exit: ProcessExit::Code(1),
            ended_by_agent: false,
        };
        cluster.report(at, EvidenceSource::Ranks, entity, exit, Vec::new());
    }
    cluster.wait(Duration::from_secs(10));
    cluster.obey();
    cluster.obey();
}

#[test]
fn a_node_on_which_all_ranks_lack_a_file_is_left_at_once() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(3);
    cluster.obey();
    cluster.obey();
    lacks_data(&mut cluster, &[1]);
    is_started_on(&cluster, &[0, 2, 3]);
    let case = cluster.cases()[0].clone();
    let weighs =
        |text: &str| text.contains("All 2 ranks on node node-1 report the same, and no rank on another node does");
    let texts: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    assert!(texts.iter().any(|text| weighs(text)), "{texts:?}");
    let lacking = Entity::Node { node: node(1) };
    assert_eq!(
        (&case.verdict.blamed, case.verdict.layer.as_str()),
        (&lacking, "storage"),
        "{case:#?}"
    );
    assert!(
        case.verdict.mitigation.advice.contains("on node node-1"),
        "{:?}",
        case.verdict.mitigation
    );
    let shown = cluster
        .state
        .node_view(&node(1))
        .and_then(|view| view.reason)
        .unwrap_or_default();
    assert!(
        shown.starts_with("job llm left it at") && shown.contains("data-missing (case 1)"),
        "{shown}"
    );
    let user = case
        .verdict
        .taxonomies
        .values()
        .flatten()
        .any(|category| category == "user-program");
    assert!(!user, "{:?}", case.verdict.taxonomies);
    // Another job is placed there last.
    let last = cluster.state.fleet().choose(&[], &BTreeSet::new(), 2, 4).pop();
    assert_eq!(last, Some(node(1)));
    // On a second node it lies in the program.
    lacks_data(&mut cluster, &[2]);
    for case in cluster.cases() {
        assert_eq!(case.verdict.blamed, Entity::Job { job: job() }, "{case:#?}");
        assert_eq!(case.verdict.layer, "user-data");
    }
    assert_eq!(cluster.state.node_view(&node(1)).and_then(|view| view.reason), None);
    let reason = stop_reason(&cluster);
    assert!(
        reason.contains("came back on each of the 2 nodes that were tried (node-1 node-2)"),
        "{reason}"
    );
}

#[test]
fn a_node_that_lacks_a_file_is_clear_after_a_restart_of_its_agent_or_an_uncordon() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(3);
    cluster.obey();
    cluster.obey();
    lacks_data(&mut cluster, &[1]);
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    assert_eq!(cluster.state.node_view(&node(1)).and_then(|view| view.reason), None);
}

/// No other node is free, and no retry is permitted.
#[test]
fn a_failure_that_was_not_retried_is_not_one_that_came_back() {
    let policy = Policy {
        user_retries: 0,
        ..Policy::default()
    };
    let mut cluster = Cluster::new(policy);
    cluster.submit(4);
    cluster.obey();
    cluster.obey();
    lacks_data(&mut cluster, &[1]);
    let reason = stop_reason(&cluster);
    assert!(
        reason.contains(
            "all its ranks on node-1 report it, the ranks on node-0 node-2 node-3 did not report it, and no other node \
                          is free, so it is not retried (case 1)"
        ),
        "{reason}"
    );
}

#[test]
fn a_file_that_ranks_of_several_nodes_lack_moves_no_job() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(3);
    cluster.obey();
    cluster.obey();
    lacks_data(&mut cluster, &[1, 2]);
    is_started_on(&cluster, &[0, 1, 2, 3]);
}
