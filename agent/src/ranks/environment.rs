//! Environment and output files of a rank.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rankguard_model::{LaunchOrder, NodeId, RankSlot};

use crate::collectors::pipe_can_be_made;

/// Output files of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankFiles {
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    /// Folder for files that the rank creates itself. A rank of another user has no write access beside its output,
    /// where it could replace a file that the agent reads by a link to a file of the agent.
    pub(crate) dumps: PathBuf,
}

/// Returns `<state dir>/jobs/<job>/g<generation>/rank-<rank>.{out,err}`, with a folder `dumps` beside them for ranks
/// of another user.
pub(crate) fn rank_files(state_dir: &Path, launch: &LaunchOrder, slot: RankSlot, is_other_user: bool) -> RankFiles {
    let folder = job_folder(state_dir, launch.job.as_str()).join(format!("g{}", launch.generation));
    RankFiles {
        stdout: folder.join(format!("rank-{}.out", slot.rank)),
        stderr: folder.join(format!("rank-{}.err", slot.rank)),
        dumps: if is_other_user { folder.join("dumps") } else { folder },
    }
}

/// Returns the folder of a job's output, which has a folder for each generation.
pub(super) fn job_folder(state_dir: &Path, job: &str) -> PathBuf {
    state_dir.join("jobs").join(folder_name(job))
}

/// Replaces unsafe characters of a job name: it comes from a user and must not lead out of the folder.
fn folder_name(job: &str) -> String {
    let safe: String = job
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '_'
            }
        })
        .collect();
    if safe.starts_with('.') {
        format!("_{safe}")
    } else {
        safe
    }
}

/// Returns the variables of one rank: those of the job, overridden by the ones that define the rank's place in the
/// world, which only the controller knows.
pub(super) fn variables(
    launch: &LaunchOrder,
    slot: RankSlot,
    node: &NodeId,
    socket: &Path,
) -> BTreeMap<String, String> {
    let mut vars = launch.env.clone();
    let mut set = |name: &str, value: String| vars.insert(name.to_owned(), value);
    let local_world_size = launch.ranks.len().max(1);
    let world_size = launch.world_size.to_string();
    set("RANK", slot.rank.to_string());
    set("LOCAL_RANK", slot.local_rank.to_string());
    set("WORLD_SIZE", world_size.clone());
    set("LOCAL_WORLD_SIZE", local_world_size.to_string());
    set("GROUP_RANK", launch.group_rank.to_string());
    set(
        "GROUP_WORLD_SIZE",
        launch
            .world_size
            .div_ceil(u32::try_from(local_world_size).unwrap_or(u32::MAX))
            .to_string(),
    );
    // One role only, as is torchrun's default.
    set("ROLE_NAME", "default".to_owned());
    set("ROLE_RANK", slot.rank.to_string());
    set("ROLE_WORLD_SIZE", world_size);
    set("MASTER_ADDR", launch.master_addr.clone());
    set("MASTER_PORT", launch.master_port.to_string());
    set("TORCHELASTIC_RUN_ID", launch.job.to_string());
    set("TORCHELASTIC_RESTART_COUNT", launch.restart_count.to_string());
    set("TORCHELASTIC_MAX_RESTARTS", launch.max_restarts.to_string());
    set("RANKGUARD_SOCKET", socket.display().to_string());
    set("RANKGUARD_JOB", launch.job.to_string());
    set("RANKGUARD_GENERATION", launch.generation.to_string());
    set("RANKGUARD_NODE", node.to_string());
    vars
}

/// Path prefix of a dump of PyTorch's flight recorder, the newer name first; the rank's number is appended.
const DUMP_PREFIX: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
/// Capacity of the recorder in operations, the newer name first; without one of these it records nothing.
const RING: [&str; 2] = ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"];
/// Value that PyTorch's own tutorial recommends.
const RING_SIZE: &str = "2000";
/// Enables a dump when a collective times out.
const ON_TIMEOUT: &str = "TORCH_NCCL_DUMP_ON_TIMEOUT";

/// Configures a rank's flight recorder to write its dump beside the rank's output, or where the job sets it; returns
/// the file. Source: PyTorch, `torch/csrc/distributed/c10d/{FlightRecorder,ProcessGroupNCCL}`.
pub(super) fn flight_dump(vars: &mut BTreeMap<String, String>, files: &RankFiles, slot: RankSlot) -> PathBuf {
    let own = files.dumps.join("nccl_trace_rank_").display().to_string();
    let prefix = DUMP_PREFIX
        .iter()
        .find_map(|name| vars.get(*name))
        .cloned()
        .unwrap_or(own);
    for name in DUMP_PREFIX {
        vars.entry(name.to_owned()).or_insert_with(|| prefix.clone());
    }
    if !RING.iter().any(|name| vars.contains_key(*name)) {
        vars.extend(RING.map(|name| (name.to_owned(), RING_SIZE.to_owned())));
    }
    vars.entry(ON_TIMEOUT.to_owned()).or_insert_with(|| "1".to_owned());
    PathBuf::from(format!("{prefix}{}", slot.rank))
}

/// Path prefix of the pipe that requests a dump of PyTorch's flight recorder, NCCL's name first; the rank's number and
/// `.pipe` are appended.
const PIPE_PREFIX: [&str; 2] = ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE"];

/// Returns the pipe of a rank's flight recorder: the one that the job sets, or, if `wanted`, one beside the rank's
/// output. A rank that cannot create it ends, so none is configured in a folder that supports no pipe.
pub(super) fn flight_pipe(
    vars: &mut BTreeMap<String, String>,
    files: &RankFiles,
    slot: RankSlot,
    wanted: bool,
) -> Option<PathBuf> {
    let of_job = PIPE_PREFIX.iter().find_map(|name| vars.get(*name)).cloned();
    let prefix = match of_job {
        Some(prefix) => prefix,
        None if wanted && pipe_can_be_made(&files.dumps) => {
            let own = files.dumps.join("flight_").display().to_string();
            vars.insert(PIPE_PREFIX[0].to_owned(), own.clone());
            own
        }
        None => return None,
    };
    // A job disables the pipe by an empty value.
    (!prefix.is_empty()).then(|| PathBuf::from(format!("{prefix}{}.pipe", slot.rank)))
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, JobId, RESERVED_VARIABLES, Rank};

    use super::*;
    use crate::processes::FENCE_VARIABLE;

    pub(crate) fn launch() -> LaunchOrder {
        LaunchOrder {
            job: JobId::from("digits"),
            generation: Generation(3),
            command: vec!["true".to_owned()],
            env: BTreeMap::from([
                ("RANK".to_owned(), "99".to_owned()),
                ("OMP_NUM_THREADS".to_owned(), "2".to_owned()),
            ]),
            workdir: None,
            world_size: 6,
            group_rank: 1,
            ranks: vec![
                RankSlot {
                    rank: Rank(2),
                    local_rank: 0,
                },
                RankSlot {
                    rank: Rank(3),
                    local_rank: 1,
                },
            ],
            master_addr: "10.0.0.1".to_owned(),
            master_port: 29_500,
            restart_count: 2,
            max_restarts: 5,
            checkpoint_every: 0,
            checkpoint_store: String::new(),
            restore: None,
            peers: Vec::new(),
            nodes: Vec::new(),
            tiers: rankguard_model::CheckpointTiers::default(),
            user: None,
            standby: None,
        }
    }

    #[test]
    fn a_rank_gets_what_torchrun_would_give_it() {
        let launch = launch();
        let vars = variables(&launch, launch.ranks[1], &NodeId::from("n1"), Path::new("/s"));
        let expect = [
            ("RANK", "3"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "6"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "3"),
            ("ROLE_RANK", "3"),
            ("ROLE_WORLD_SIZE", "6"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "digits"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_MAX_RESTARTS", "5"),
            ("RANKGUARD_SOCKET", "/s"),
            ("RANKGUARD_GENERATION", "3"),
            ("OMP_NUM_THREADS", "2"),
        ];
        for (name, value) in expect {
            assert_eq!(vars.get(name).map(String::as_str), Some(value), "{name}");
        }
        // A submission that sets one of them is refused.
        let own = vars
            .keys()
            .map(String::as_str)
            .filter(|name| *name != "OMP_NUM_THREADS");
        let own: Vec<&str> = own.collect();
        let reserved = RESERVED_VARIABLES
            .iter()
            .copied()
            .filter(|name| *name != FENCE_VARIABLE);
        assert_eq!(own, reserved.collect::<Vec<_>>());
    }

    #[test]
    fn a_dump_goes_beside_the_output_or_where_the_job_wants_it() {
        let launch = launch();
        let files = rank_files(Path::new("/state"), &launch, launch.ranks[1], false);
        let mut vars = BTreeMap::new();
        let path = flight_dump(&mut vars, &files, launch.ranks[1]);
        assert_eq!(path, Path::new("/state/jobs/digits/g3/nccl_trace_rank_3"));
        assert_eq!(
            vars["TORCH_FR_DUMP_TEMP_FILE"],
            "/state/jobs/digits/g3/nccl_trace_rank_"
        );
        assert_eq!(vars["TORCH_NCCL_TRACE_BUFFER_SIZE"], "2000");
        assert_eq!(vars["TORCH_NCCL_DUMP_ON_TIMEOUT"], "1");

        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut vars = BTreeMap::from([
            set("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/shared/dumps/r"),
            set("TORCH_NCCL_TRACE_BUFFER_SIZE", "64"),
            set("TORCH_NCCL_DUMP_ON_TIMEOUT", "0"),
        ]);
        let path = flight_dump(&mut vars, &files, launch.ranks[1]);
        assert_eq!(path, Path::new("/shared/dumps/r3"));
        assert_eq!(vars["TORCH_FR_DUMP_TEMP_FILE"], "/shared/dumps/r");
        assert_eq!(vars.get("TORCH_FR_BUFFER_SIZE"), None);
        assert_eq!(vars["TORCH_NCCL_DUMP_ON_TIMEOUT"], "0");
    }

    #[test]
    fn a_pipe_is_made_where_the_job_wants_it_or_the_node_does_and_can() {
        let launch = launch();
        let folder = tempfile::tempdir().expect("a folder");
        let files = rank_files(folder.path(), &launch, launch.ranks[1], false);
        let mut vars = BTreeMap::new();
        let pipe = |vars: &mut BTreeMap<String, String>, wanted| flight_pipe(vars, &files, launch.ranks[1], wanted);
        assert_eq!(pipe(&mut vars, false), None);
        // The folder does not exist: a rank that tried would end.
        assert_eq!(pipe(&mut vars, true), None);
        assert!(vars.is_empty());
        std::fs::create_dir_all(folder.path().join("jobs/digits/g3")).expect("made");
        let own = folder.path().join("jobs/digits/g3/flight_3.pipe");
        assert_eq!(pipe(&mut vars, true), Some(own));
        assert!(vars["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"].ends_with("/flight_"));
        let theirs = |prefix: &str| BTreeMap::from([(PIPE_PREFIX[0].to_owned(), prefix.to_owned())]);
        assert_eq!(
            pipe(&mut theirs("/shared/p"), false),
            Some(PathBuf::from("/shared/p3.pipe"))
        );
        assert_eq!(pipe(&mut theirs(""), true), None);
    }

    #[test]
    fn a_job_name_cannot_lead_out_of_the_state_directory() {
        assert_eq!(folder_name("../../etc"), "_.._.._etc");
        assert_eq!(folder_name("llama-7b_v1.2"), "llama-7b_v1.2");
    }
}
