//! RG-13: what a rank may do under the shipped unit of the agent, seen from inside a real rank.
//!
//! The test starts the agent as systemd would: with the user, the ambient capabilities and the words of the unit. The users are
//! numbers that no entry of the user database has.

#![allow(clippy::print_stderr, reason = "a test that cannot run reports it")]

use crate::support;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::cluster::text_of;
use crate::support::{command, logs, rankguard, until};
use rankguard_identity::{CertificateAuthority, IdentityFiles, IssueRequest, PeerRole};
use rustix::fs::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

const LIMIT: Duration = Duration::from_secs(120);

/// Stand for `rankguard` and `rankguard-job` of the unit.
const AGENT_USER: u32 = 3_910_001;
const JOB_USER: u32 = 3_910_002;
/// A user that the configuration lets jobs name.
const NAMED_USER: u32 = 3_910_003;

/// The value of a line of the shipped unit.
fn unit(name: &str) -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../packaging/systemd/rankguard-agent.service"
    );
    let text = fs::read_to_string(path).expect("the unit");
    let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("the unit has no {name}=")).to_owned()
}

fn unit_capabilities() -> CapabilitySet {
    let named = |name: &str| match name {
        "CAP_SYSLOG" => CapabilitySet::SYSLOG,
        "CAP_SYS_PTRACE" => CapabilitySet::SYS_PTRACE,
        "CAP_SETUID" => CapabilitySet::SETUID,
        "CAP_SETGID" => CapabilitySet::SETGID,
        "CAP_SETPCAP" => CapabilitySet::SETPCAP,
        "CAP_CHOWN" => CapabilitySet::CHOWN,
        "CAP_KILL" => CapabilitySet::KILL,
        other => panic!("the unit has a capability that this test does not know: {other}"),
    };
    let listed = unit("AmbientCapabilities");
    assert_eq!(listed, unit("CapabilityBoundingSet"));
    listed.split_whitespace().map(named).collect()
}

/// Makes a command run as a user without a name, with these capabilities, as systemd does.
fn run_as(command: &mut Command, user: u32, kept: CapabilitySet) {
    let enter = move || {
        let uid = Uid::from_raw(user);
        let gid = Gid::from_raw(user);
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        };
        set_capabilities(None, sets)?;
        for one in kept.iter() {
            configure_capability_in_ambient_set(one, true)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec there are system calls on values of the stack only.
    unsafe {
        command.pre_exec(enter);
    }
}

/// Killed when dropped.
struct Daemon(Child);

impl Daemon {
    fn start(mut command: Command, log: &Path) -> Self {
        let log = fs::File::create(log).expect("a log");
        Self(
            command
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("the program starts"),
        )
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A controller, and an agent under the unit's settings.
struct Site {
    dir: tempfile::TempDir,
    address: String,
    operator: IdentityFiles,
    key: PathBuf,
    controller: Daemon,
    agent: Daemon,
}

impl Site {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("passed by all");
        let path = |name: &str| dir.path().join(name);
        CertificateAuthority::create(&path("ca"), "test", 30).expect("an authority");
        let authority = CertificateAuthority::open(&path("ca")).expect("it was just made");
        let issue = |role, name: &str| {
            let own = if role == PeerRole::Controller { "" } else { name };
            let wanted = IssueRequest {
                role,
                name: own.to_owned(),
                hosts: vec!["127.0.0.1".to_owned()],
                days: 5,
            };
            authority.issue(&wanted, &path(name)).expect("issued").1
        };
        let server = issue(PeerRole::Controller, "controller-identity");
        let operator = issue(PeerRole::Operator, "ada");
        let node = issue(PeerRole::Agent, "n1");
        fs::write(path("test.toml"), format!("[controller.policy]\ngather_ms = 200\nsettle_ms = 300\n[agent]\njob_users = [\"{NAMED_USER}\", \"{AGENT_USER}\", \"0\"]\n")).expect("written");
        let state = path("controller");
        let config = path("test.toml");
        let words = [
            "--config",
            text_of(&config),
            "controller",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
        ];
        let controller = command(&with(&[&words[..], &[text_of(&state)]].concat(), &server));
        let controller = Daemon::start(controller, &path("controller.log"));
        let address = until("the controller to listen", LIMIT, || {
            fs::read_to_string(state.join("controller.addr")).ok()
        });
        let address = address.trim().to_owned();
        for own in [path("n1"), node.ca.clone(), node.certificate.clone(), node.key.clone()] {
            chown(own, Some(AGENT_USER), Some(AGENT_USER)).expect("root may");
        }
        let agent = agent_command(dir.path(), &address, &node);
        let agent = Daemon::start(agent, &path("n1.log"));
        let site = Self {
            key: node.key.clone(),
            dir,
            address,
            operator,
            controller,
            agent,
        };
        until("the agent to join", LIMIT, || {
            let ran = site.ask(&["status", "nodes", "--format", "json"]);
            (ran.contains("\"healthy\"")).then_some(())
        });
        site
    }

    fn ask(&self, words: &[&str]) -> String {
        let words = [words, &["--controller", &self.address]].concat();
        rankguard(&with(&words, &self.operator)).expect(0).stdout
    }

    /// A folder that a user may write.
    fn folder(&self, name: &str, user: u32) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir(&folder).expect("made");
        chown(&folder, Some(user), Some(user)).expect("root may");
        folder
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// Submits a job; the words that follow its end.
    fn submit(&self, words: &[&str], code: i32) -> support::Ran {
        let words = [&["run", "--controller", &self.address], words].concat();
        rankguard(&with(&words, &self.operator)).expect(code)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", logs(self.dir.path()));
        }
    }
}

/// Words of a command and the flags of an identity.
fn with<'a>(words: &[&'a str], files: &'a IdentityFiles) -> Vec<&'a str> {
    let flags = ["--identity-ca", text_of(&files.ca), "--identity-certificate"];
    let more = [text_of(&files.certificate), "--identity-key", text_of(&files.key)];
    [&flags[..], &more, words].concat()
}

/// The unit's words with the places and users of this test.
fn agent_command(dir: &Path, address: &str, files: &IdentityFiles) -> Command {
    let state = dir.join("agent");
    fs::create_dir(&state).expect("made");
    // As wide as a directory may have been made by hand.
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("set");
    chown(&state, Some(AGENT_USER), Some(AGENT_USER)).expect("root may");
    assert_eq!(unit("User"), "rankguard");
    let config = dir.join("test.toml");
    let job_user = JOB_USER.to_string();
    let start = unit("ExecStart");
    let words = start.split_whitespace().skip(1).map(|word| match word {
        "/etc/rankguard.toml" => text_of(&config),
        "/var/lib/rankguard-agent" => text_of(&state),
        "rankguard-job" => &job_user,
        word => word,
    });
    let words: Vec<&str> = words.collect();
    let more = [
        "--node",
        "n1",
        "--slots",
        "2",
        "--kernel-log",
        "off",
        "--controller",
        address,
    ];
    let mut agent = command(&with(&[&words[..], &more].concat(), files));
    // As from the unit's EnvironmentFile.
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_STORAGE_KEY",
    ] {
        agent.env(name, "hush");
    }
    agent.env("NCCL_DEBUG", "WARN").env("HOME", "/nonexistent");
    run_as(&mut agent, AGENT_USER, unit_capabilities());
    agent
}

/// Whether other users can start the program; where the repository lies in a closed directory they cannot.
fn others_can_start_it() -> bool {
    let mut version = command(&["--version"]);
    run_as(&mut version, JOB_USER, CapabilitySet::empty());
    version.output().is_ok_and(|ran| ran.status.success())
}

fn is_possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can start the agent as another user, so the rights of ranks were not looked at");
        return false;
    }
    if !others_can_start_it() {
        eprintln!("SKIPPED: other users cannot start the built program, so the rights of ranks were not looked at");
        return false;
    }
    true
}

#[test]
fn a_rank_under_the_unit_has_no_rights_of_the_agent() {
    if !is_possible() {
        return;
    }
    let site = Site::start();
    let out = site.folder("out", JOB_USER);
    let script = r#"
        cd "$0"
        cat /proc/self/status > status
        env > env
        cat "$1" > key 2> key.err
        cat "$2/spool.redb" > spool 2> spool.err
        ls "$2" > list 2> list.err
        for pid in $3 $(grep PPid /proc/self/status | cut -f 2) $4; do
            cat /proc/$pid/environ >> foreign 2>> foreign.err
            head -c 1 /proc/$pid/mem >> foreign 2>> foreign.err
            kill -0 $pid >> foreign 2>> foreign.err && echo signal >> foreign
        done
        touch done
    "#;
    let agent = site.agent.0.id().to_string();
    let controller = site.controller.0.id().to_string();
    let key = site.key.clone();
    let state = site.state();
    let tail = [text_of(&out), text_of(&key), text_of(&state), &agent, &controller];
    site.submit(
        &[
            &["--name", "look", "--workdir", "/", "--", "sh", "-c", script],
            &tail[..],
        ]
        .concat(),
        0,
    );
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    assert!(out.join("done").exists());
    let status = read("status");
    let field = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        found
            .unwrap_or_else(|| panic!("{name} is not in:\n{status}"))
            .trim()
            .to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    let user = JOB_USER.to_string();
    assert!(
        field("Uid").split_whitespace().all(|uid| uid == user),
        "{}",
        field("Uid")
    );
    assert_eq!(field("Groups"), user);
    let env = read("env");
    for name in ["AWS_", "GOOGLE_", "AZURE_", "hush", "RANKGUARD_IDENTITY"] {
        assert!(!env.contains(name), "{name} is in:\n{env}");
    }
    assert!(
        env.contains("NCCL_DEBUG=WARN") && env.contains("RANKGUARD_SOCKET="),
        "{env}"
    );
    for (name, what) in [
        ("key", "the node's key"),
        ("spool", "the spool"),
        ("list", "the state directory"),
    ] {
        assert_eq!(read(name), "", "a rank can read {what}");
        assert!(
            read(&format!("{name}.err")).contains("denied"),
            "{what}: {}",
            read(&format!("{name}.err"))
        );
    }
    assert_eq!(
        read("foreign"),
        "",
        "a rank can trace or signal the agent, its supervisor or the controller"
    );
}

#[test]
fn a_job_trains_and_checkpoints_as_the_user_of_the_unit() {
    if !is_possible() {
        return;
    }
    let site = Site::start();
    let out = site.folder("out", JOB_USER);
    let store = site.folder("store", AGENT_USER);
    let out_flag = format!("--out={}", out.display());
    let kept = [
        "--checkpoint-dir",
        text_of(&store),
        "--checkpoint-every",
        "5",
        "--workdir",
        "/",
    ];
    let program = [
        "--",
        env!("CARGO_BIN_EXE_rankguard"),
        "demo-rank",
        "--epochs=2",
        &out_flag,
    ];
    site.submit(
        &[&["--name", "train", "--ranks-per-node", "2"], &kept[..], &program].concat(),
        0,
    );
    let jobs = site.ask(&["status", "jobs", "--format", "json"]);
    let jobs: serde_json::Value = serde_json::from_str(&jobs).expect("JSON");
    let checkpoints = jobs[0]["checkpoints"].as_array().expect("checkpoints");
    assert!(!checkpoints.is_empty(), "{jobs:#}");
    // Output of ranks is theirs and the agent's.
    let output = site.state().join("jobs/train/g1/rank-0.out");
    let found = fs::metadata(&output).expect("the output");
    assert_eq!((found.uid(), found.mode() & 0o777), (JOB_USER, 0o640));
    let mode = |path: PathBuf| fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!(mode(site.state()), 0o711);
    for file in ["spool.redb", "fences.json", "supervision.json"] {
        assert_eq!(mode(site.state().join(file)), 0o600, "{file}");
    }
}

#[test]
fn a_job_runs_as_a_user_that_the_node_allows_and_as_no_other() {
    if !is_possible() {
        return;
    }
    let site = Site::start();
    let out = site.folder("out", NAMED_USER);
    let named = NAMED_USER.to_string();
    let script = "id -u > \"$0/uid\"";
    let tail = ["--workdir", "/", "--", "sh", "-c", script, text_of(&out)];
    site.submit(&[&["--name", "named", "--user", &named], &tail[..]].concat(), 0);
    assert_eq!(fs::read_to_string(out.join("uid")).expect("written").trim(), named);
    let agent = AGENT_USER.to_string();
    // Not allowed by the configuration; and allowed there, but the agent's own user and root.
    for (user, reason) in [
        ("3910009", "agent.job_users"),
        (&agent, "may not run ranks"),
        ("0", "may not run ranks"),
    ] {
        let name = format!("as-{user}");
        let ran = site.submit(&[&["--name", &name, "--user", user], &tail[..]].concat(), 3);
        assert!(ran.stderr.contains(reason), "{user}: {}", ran.stderr);
    }
}
