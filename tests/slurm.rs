//! Node states beside a real Slurm: slurmctld, two slurmds and munged of Debian 12 (`tests/slurm.sh` unpacks them), a
//! controller and two agents.

#![allow(clippy::print_stderr, reason = "a test that cannot run reports it")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::cluster::text_of;
use crate::support::guard::guarded;
use crate::support::{Daemon, finish, nodes, rankguard, until};

const LIMIT: Duration = Duration::from_secs(120);
const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";

/// A cluster of Slurm with the nodes n1 and n2, which run, and n3, which is no machine.
struct SlurmCluster {
    dir: tempfile::TempDir,
    /// Unpacked packages.
    root: PathBuf,
    daemons: Vec<Child>,
}

impl SlurmCluster {
    /// Starts everything but the prolog, which is added by [`Self::write_prolog`].
    fn start(root: PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut cluster = Self {
            dir,
            root,
            daemons: Vec::new(),
        };
        fs::write(cluster.path("munge.key"), [7; 1024]).expect("written");
        fs::set_permissions(cluster.path("munge.key"), fs::Permissions::from_mode(0o600)).expect("changed");
        cluster.write_script("prolog", "exit 0");
        let scontrol = format!(
            "export LD_LIBRARY_PATH={} SLURM_CONF={}\nexec {} \"$@\"",
            cluster.libraries(),
            cluster.path("slurm.conf").display(),
            cluster.program("bin/scontrol").display()
        );
        cluster.write_script("scontrol", &scontrol);
        fs::create_dir(cluster.path("state")).expect("made");
        fs::write(cluster.path("slurm.conf"), cluster.config()).expect("written");
        cluster.start_munged();
        cluster.start_slurmctld();
        for node in ["n1", "n2"] {
            let conf = cluster.path("slurm.conf");
            let step = cluster.program("sbin/slurmstepd-wlm");
            let words = ["-D", "-N", node, "-f", text_of(&conf), "-d", text_of(&step)];
            cluster.start_daemon("sbin/slurmd-wlm", &words);
        }
        for node in ["n1", "n2"] {
            cluster.await_node(node, |line| line.contains(" State=IDLE "));
        }
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr").join(name)
    }

    fn libraries(&self) -> String {
        let machine = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let folder = self.root.join(machine);
        format!("{}:{}", folder.display(), folder.join("slurm-wlm").display())
    }

    fn config(&self) -> String {
        // The ports are free until the daemons take them.
        let listeners: Vec<TcpListener> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
            .collect();
        let ports: Vec<u16> = listeners
            .iter()
            .map(|it| it.local_addr().expect("bound").port())
            .collect();
        let run = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output().expect("it runs");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let (user, host) = (run("id", &["-un"]), run("uname", &["-n"]));
        let host = host.split('.').next().unwrap_or_default();
        let dir = self.dir.path().display();
        let plugins = self.libraries();
        let plugins = plugins.rsplit(':').next().unwrap_or_default();
        let [ctl, one, two] = ports[..] else {
            panic!("three ports")
        };
        format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\nSlurmctldPort={ctl}\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/munge.socket\nCredType=cred/munge\nPluginDir={plugins}\n\
             StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool-%n\nSlurmctldPidFile={dir}/ctl.pid\n\
             SlurmdPidFile={dir}/%n.pid\nSlurmctldLogFile={dir}/slurmctld.log\nSlurmdLogFile={dir}/slurmd-%n.log\n\
             ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSelectType=select/cons_tres\nMailProg=/bin/true\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nReturnToService=0\n\
             Prolog={dir}/prolog\nPrologFlags=Alloc\nSchedulerParameters=nohold_on_prolog_fail,sched_interval=1\n\
             NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs=1\n\
             NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs=1\n\
             NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port=1 CPUs=1\n\
             PartitionName=main Nodes=ALL Default=YES State=UP\n"
        )
    }

    fn write_script(&self, name: &str, text: &str) {
        let path = self.path(name);
        let draft = self.path(&format!("{name}.draft"));
        fs::write(&draft, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("changed");
        fs::rename(draft, path).expect("renamed");
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.program(program));
        guarded(&mut command)
            .args(words)
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("SLURM_CONF", self.path("slurm.conf"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn start_daemon(&mut self, program: &str, words: &[&str]) {
        let name = program.rsplit('/').next().unwrap_or_default();
        let output = fs::File::options()
            .append(true)
            .create(true)
            .open(self.path(&format!("{name}.out")));
        let output = output.expect("a log");
        let errors = output.try_clone().expect("a second handle");
        let mut command = self.command(program, words);
        let child = command.stdout(output).stderr(errors).spawn();
        self.daemons.push(child.expect("it starts"));
    }

    fn start_munged(&mut self) {
        let option = |name: &str, file: &str| format!("--{name}={}", self.path(file).display());
        let words = [
            option("socket", "munge.socket"),
            option("key-file", "munge.key"),
            option("log-file", "munged.log"),
            option("pid-file", "munged.pid"),
            option("seed-file", "munged.seed"),
        ];
        let words: Vec<&str> = ["--foreground", "--force"]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect();
        self.start_daemon("sbin/munged", &words);
        let socket = self.path("munge.socket");
        until("munged to listen", LIMIT, || socket.exists().then_some(()));
    }

    fn start_slurmctld(&mut self) {
        let conf = self.path("slurm.conf");
        self.start_daemon("sbin/slurmctld-wlm", &["-D", "-f", text_of(&conf)]);
        until("slurmctld to answer", LIMIT, || {
            self.run("bin/scontrol", &["ping"]).contains(" is UP").then_some(())
        });
    }

    /// Ends slurmctld, which saves its state.
    fn stop_slurmctld(&mut self) {
        let mut child = self.daemons.remove(1);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        child.wait().expect("it ends");
    }

    /// Runs a command of Slurm to its end and returns its output.
    fn run(&self, program: &str, words: &[&str]) -> String {
        let mut command = self.command(program, words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let ran = finish(child.expect("it starts"), LIMIT);
        format!("{}{}", ran.stdout, ran.stderr)
    }

    fn update(&self, node: &str, words: &[&str]) {
        let node = format!("nodename={node}");
        let said = self.run("bin/scontrol", &[&["update", &node], words].concat());
        assert_eq!(said, "", "{words:?}");
    }

    fn line(&self, node: &str) -> String {
        self.run("bin/scontrol", &["--oneliner", "show", "node", node])
    }

    fn await_node(&self, node: &str, wanted: impl Fn(&str) -> bool) -> String {
        until(&format!("node {node} of Slurm; now {}", self.line(node)), LIMIT, || {
            Some(self.line(node)).filter(|line| wanted(line))
        })
    }

    fn await_drain(&self, node: &str, reason: &str) {
        let wanted = format!(" Reason={reason} [");
        self.await_node(node, |line| line.contains("+DRAIN") && line.contains(&wanted));
    }

    /// A node in use has neither a drain nor a reason.
    fn await_open(&self, node: &str) {
        self.await_node(node, |line| {
            line.contains(" State=IDLE") && !line.contains("DRAIN") && !line.contains(" Reason=")
        });
    }

    /// Submits a job for n1 and returns its number.
    fn submit(&self) -> String {
        self.write_script("job", "exit 0");
        let job = self.path("job");
        let said = self.run(
            "bin/sbatch",
            &["--parsable", "-w", "n1", "-o", "/dev/null", text_of(&job)],
        );
        let job = said.trim().to_owned();
        assert!(job.parse::<u64>().is_ok(), "{said}");
        job
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in [
                "slurmctld.log",
                "slurmd-n1.log",
                "slurmctld-wlm.out",
                "munged.out",
                "prolog.log",
            ] {
                eprintln!("{log}:\n{}", fs::read_to_string(self.path(log)).unwrap_or_default());
            }
        }
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Slurm and Rankguard side by side.
struct BothSides {
    slurm: SlurmCluster,
    rankguard: nodes::Cluster,
}

impl BothSides {
    /// Starts both sides with the nodes n1 and n2; n1 reads this file as its kernel log.
    fn start(root: PathBuf, kernel: &Path) -> Self {
        let settings = "[controller.policy]\ngather_ms = 200\nsettle_ms = 300\n";
        let mut cluster = nodes::Cluster::start_kernel_log(settings, kernel);
        let agent = nodes::Cluster::agent(cluster.dir.path(), &cluster.address, "n2");
        cluster.agents.push(agent);
        cluster.joined(2);
        Self {
            slurm: SlurmCluster::start(root),
            rankguard: cluster,
        }
    }

    fn node(&self, action: &str, node: &str, more: &[&str]) {
        let words = ["node", action, node, "--controller", &self.rankguard.address];
        rankguard(&[&words[..], more].concat()).expect(0);
    }

    fn start_sync(&self, log: &str) -> Daemon {
        self.start_sync_every("1", log)
    }

    fn start_sync_every(&self, seconds: &str, log: &str) -> Daemon {
        let scontrol = self.slurm.path("scontrol");
        let words = ["slurm", "sync", "--interval", seconds, "--scontrol", text_of(&scontrol)];
        let words = [&words[..], &["--controller", &self.rankguard.address]].concat();
        Daemon::start(&words, &self.rankguard.dir.path().join(log))
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.rankguard.dir.path().join(name)).unwrap_or_default()
    }

    fn reasons(&self, node: &str) -> Vec<String> {
        let nodes = self.rankguard.ask(&["status", "nodes", "--format", "json"]);
        let mut nodes = nodes.as_array().into_iter().flatten();
        let node = nodes.find(|view| view["node"] == *node).expect("a known node");
        let reasons = node["cordon"]["reasons"].as_array().into_iter().flatten();
        reasons.filter_map(|reason| Some(reason.as_str()?.to_owned())).collect()
    }

    fn await_cordon(&self, node: &str, wanted: bool) {
        until(&format!("a cordon of {node}: {wanted}"), LIMIT, || {
            (self.reasons(node).is_empty() != wanted).then_some(())
        });
    }

    /// Awaits the reasons of the cordon of a node; none: it has no cordon.
    fn await_reasons(&self, node: &str, wanted: &[&str]) {
        until(&format!("the cordon of {node}: {wanted:?}"), LIMIT, || {
            (self.reasons(node) == wanted).then_some(())
        });
    }
}

#[test]
fn both_sides_agree_and_no_drain_of_a_person_is_lifted() {
    let Some(root) = std::env::var_os("RANKGUARD_TEST_SLURM") else {
        eprintln!("SKIPPED: RANKGUARD_TEST_SLURM is not set (tests/slurm.sh sets it)");
        return;
    };
    let kernel = tempfile::NamedTempFile::new().expect("a file");
    let mut sides = BothSides::start(PathBuf::from(root), kernel.path());
    let sync = sides.start_sync("sync.log");
    // Two at a time do no harm.
    let other = sides.start_sync("other.log");
    reasons_of_each_side(&sides, kernel.path());
    drop(other);
    restarts_and_the_limit(&mut sides, sync);
    prolog_of_an_unfit_node(&mut sides);
}

/// A case drains in Slurm, a person's drain cordons; each side lifts its own only.
fn reasons_of_each_side(sides: &BothSides, kernel: &Path) {
    fs::write(kernel, format!("{XID}\n")).expect("written");
    let line = sides.slurm.await_node("n1", |line| line.contains("+DRAIN"));
    assert!(
        line.contains(" Reason=rankguard: case 1: gpu-fallen-off-bus on node n1, gpu "),
        "{line}"
    );
    // The cordon stands: Rankguard owns the decision.
    sides.slurm.update("n1", &["state=resume"]);
    sides.slurm.await_node("n1", |line| line.contains("+DRAIN"));
    sides.node("uncordon", "n1", &[]);
    sides.slurm.await_open("n1");

    let mirror = "slurm drain: fan broken (set by ";
    sides.slurm.update("n2", &["state=drain", "reason=fan broken"]);
    let reason = until("the cordon of n2", LIMIT, || sides.reasons("n2").pop());
    assert!(reason.starts_with(mirror), "{reason}");
    // The drain stands: Slurm owns the decision.
    sides.node("uncordon", "n2", &[]);
    sides.await_reasons("n2", &[&reason]);
    sides.slurm.await_drain("n2", "fan broken");

    // Both in the same second: each lifts its own, and the node is out of use until both have.
    sides.slurm.update("n2", &["state=resume"]);
    sides.await_reasons("n2", &[]);
    sides.node("cordon", "n2", &["--reason", "ticket 1"]);
    sides.slurm.update("n2", &["state=drain", "reason=fan broken"]);
    sides.slurm.await_drain("n2", "fan broken");
    sides.node("uncordon", "n2", &[]);
    sides.await_reasons("n2", &[&reason]);
    sides.slurm.await_drain("n2", "fan broken");
}

/// Begins with n2 drained by a person. The limit of two nodes is one.
fn restarts_and_the_limit(sides: &mut BothSides, mut sync: Daemon) {
    assert_eq!(sync.terminate(LIMIT), Some(0));
    sides.slurm.stop_slurmctld();
    let sync = sides.start_sync("second.log");
    until("the report about Slurm", LIMIT, || {
        sides.log("second.log").contains("Slurm does not answer").then_some(())
    });
    sides.node("cordon", "n1", &["--reason", "ticket 2"]);
    sides.slurm.start_slurmctld();
    // slurmctld begins as the second daemon of the list.
    let last = sides.slurm.daemons.pop().expect("slurmctld");
    sides.slurm.daemons.insert(1, last);
    sides.slurm.await_drain("n1", "rankguard: ticket 2 (auto-resume)");
    sides.slurm.await_drain("n2", "fan broken");
    // `resume` is refused until the slurmds have reported to the new slurmctld.
    sides.slurm.await_node("n2", |line| line.contains(" State=IDLE+DRAIN "));
    // A person resumes n2; a second reason of Rankguard is beyond the limit.
    sides.slurm.update("n2", &["state=resume"]);
    sides.await_reasons("n2", &[]);
    sides.node("cordon", "n2", &["--reason", "ticket 3"]);
    until("the report about the limit", LIMIT, || {
        sides.log("second.log").contains("LIMIT REACHED").then_some(())
    });
    assert!(!sides.slurm.line("n2").contains("DRAIN"));
    let said = sides.log("second.log");
    assert_eq!(said.matches("n3 (Slurm)").count(), 1, "{said}");
    let scontrol = sides.slurm.path("scontrol");
    let words = [
        "slurm",
        "exclude",
        "--scontrol",
        text_of(&scontrol),
        "--controller",
        &sides.rankguard.address,
    ];
    assert_eq!(rankguard(&words).expect(0).stdout, "n[1-2]\n");
    for node in ["n1", "n2"] {
        sides.node("uncordon", node, &[]);
        sides.slurm.await_open(node);
    }
    drop(sync);
}

/// Without the daemon of the comparison: slurmd asks before it starts a job.
fn prolog_of_an_unfit_node(sides: &mut BothSides) {
    let address = sides.rankguard.address.clone();
    let scontrol = sides.slurm.path("scontrol");
    let gate = [
        "slurm",
        "prolog",
        "--node",
        "n1",
        "--controller",
        &address,
        "--scontrol",
        text_of(&scontrol),
    ];
    sides.slurm.write_script(
        "prolog",
        &format!(
            "exec {} {} 2>>{}",
            env!("CARGO_BIN_EXE_rankguard"),
            gate.join(" "),
            sides.slurm.path("prolog.log").display()
        ),
    );
    sides.node("cordon", "n1", &["--reason", "ticket 4"]);
    let job = sides.slurm.submit();
    // The reason is that of a mirror, not `Prolog error`, so that the end of the cordon ends the drain.
    sides.slurm.await_drain("n1", "rankguard: ticket 4 (auto-resume)");
    until("the job to be requeued", LIMIT, || {
        let shown = sides.slurm.run("bin/scontrol", &["--oneliner", "show", "job", &job]);
        (shown.contains(" JobState=PENDING ") && shown.contains(" Restarts=1 ")).then_some(())
    });
    let said = fs::read_to_string(sides.slurm.path("prolog.log")).expect("a log");
    assert!(said.contains("node n1 is unfit: ticket 4"), "{said}");
    // The plan is printed, and nothing is changed.
    sides.node("uncordon", "n1", &[]);
    let plan = [
        "slurm",
        "sync",
        "--dry-run",
        "--scontrol",
        text_of(&scontrol),
        "--controller",
        &address,
    ];
    let plan = rankguard(&plan).expect(1).stdout;
    assert_eq!(
        plan,
        "lift the drain of n1 in Slurm: rankguard: ticket 4 (auto-resume)\n"
    );
    sides.slurm.await_drain("n1", "rankguard: ticket 4 (auto-resume)");
    let _sync = sides.start_sync("third.log");
    sides.slurm.await_open("n1");
    // Slurm lets the requeued job wait two minutes; another one starts at once.
    let next = sides.slurm.submit();
    until("a job to end on the node that is fit again", LIMIT, || {
        let shown = sides.slurm.run("bin/scontrol", &["--oneliner", "show", "job", &next]);
        shown.contains(" JobState=COMPLETED ").then_some(())
    });

    // Without a controller the node passes, unless the caller wants otherwise.
    sides.rankguard.controller.kill();
    let ran = rankguard(&gate).expect(0);
    assert!(ran.stderr.contains("is unknown, and the job starts"), "{}", ran.stderr);
    rankguard(&[&gate[..], &["--when-unknown", "fail"]].concat()).expect(2);
    until("the report about the controller", LIMIT, || {
        sides
            .log("third.log")
            .contains("the controller does not answer")
            .then_some(())
    });
}

/// Prints the delays of both directions at the default interval: `tests/slurm.sh FOLDER --ignored`.
#[test]
#[ignore = "a measurement"]
fn measure_delays() {
    let Some(root) = std::env::var_os("RANKGUARD_TEST_SLURM") else {
        eprintln!("SKIPPED: RANKGUARD_TEST_SLURM is not set (tests/slurm.sh sets it)");
        return;
    };
    let kernel = tempfile::NamedTempFile::new().expect("a file");
    let sides = BothSides::start(PathBuf::from(root), kernel.path());
    let _sync = sides.start_sync_every("2", "sync.log");
    let mut delays: [Vec<Duration>; 4] = Default::default();
    for round in 0..15_u64 {
        // The rounds begin at different times of the interval.
        std::thread::sleep(Duration::from_millis(130 * round % 2_000));
        let times: [&dyn Fn(); 4] = [
            &|| {
                sides.node("cordon", "n1", &["--reason", "ticket"]);
                sides.slurm.await_drain("n1", "rankguard: ticket (auto-resume)");
            },
            &|| {
                sides.node("uncordon", "n1", &[]);
                sides.slurm.await_open("n1");
            },
            &|| {
                sides.slurm.update("n2", &["state=drain", "reason=fan"]);
                sides.await_cordon("n2", true);
            },
            &|| {
                sides.slurm.update("n2", &["state=resume"]);
                sides.await_cordon("n2", false);
            },
        ];
        for (change, all) in times.iter().zip(&mut delays) {
            let started = Instant::now();
            change();
            all.push(started.elapsed());
        }
    }
    let names = [
        "cordon -> drain",
        "uncordon -> resume",
        "drain -> cordon",
        "resume -> uncordon",
    ];
    for (name, mut all) in names.iter().zip(delays) {
        all.sort();
        eprintln!(
            "{name}: {} changes, median {:.2?}, longest {:.2?}",
            all.len(),
            all[all.len() / 2],
            all[all.len() - 1]
        );
    }
}
