//! Collector with a stub library behind the real wrapper, which loads it as it does on a node.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use rankguard_model::NodeId;
use tempfile::TempDir;

use super::*;

mod parts;
mod readings;

/// Longest wait of a test for an expected event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Deadline of a call in tests with a hang. Other tests use [`PATIENCE`], because a slow machine is not a hung driver.
const SHORT: Duration = Duration::from_secs(1);

/// Running collector over a library that plays a scenario.
struct Rig {
    folder: TempDir,
    intake: EvidenceIntake,
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
    deadline: Duration,
    synthetic: bool,
    xids: XidMerger,
    rounds: Arc<AtomicU64>,
    next: Arc<Mutex<Option<String>>>,
    told: Vec<String>,
    /// Link named by the last finding about links.
    worst: Option<String>,
}

/// Environment variable that makes the test binary serve library calls.
const CALLS_OF: &str = "RANKGUARD_TEST_CALLS_OF";
/// Set beside it if calls are to hang.
const HANGS: &str = "RANKGUARD_TEST_CALLS_HANG";

/// Not a test: the process that the collectors of the tests start.
#[test]
fn the_process_that_calls_the_library() {
    if let Some(library) = std::env::var_os(CALLS_OF) {
        let deadline = std::env::var_os(HANGS).map_or(PATIENCE, |_| SHORT);
        serve_gpu_calls(Some(Path::new(&library)), deadline).expect("the agent of the test is there");
    }
}

/// Returns the stub library, compiled once for all tests; with `old`, one that lacks newer calls.
fn compiled(old: bool) -> &'static Path {
    static FRESH: OnceLock<TempDir> = OnceLock::new();
    static OLD: OnceLock<TempDir> = OnceLock::new();
    let folder = (if old { &OLD } else { &FRESH }).get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fake-nvml/src/lib.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command.args([
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
            "--crate-name",
            "fake_nvml",
        ]);
        if old {
            command.args(["--cfg", "feature=\"old-driver\""]);
        }
        let built = command.arg("-o").arg(folder.path().join(LIBRARY)).arg(source).status();
        assert!(
            built.expect("rustc, which built this test, runs").success(),
            "the stand-in library compiles"
        );
        folder
    });
    folder.path()
}

const LIBRARY: &str = "libfake.so";

/// Copies the library for one test: the scenario is the file beside it.
fn place_library(folder: &Path, old: bool) {
    let fresh = folder.join("fresh.so");
    fs::copy(compiled(old).join(LIBRARY), &fresh).expect("copied");
    fs::rename(fresh, folder.join(LIBRARY)).expect("renamed");
}

/// Replaces the scenario in one step, so that no call reads half of it.
fn replace_scenario(folder: &Path, scenario: &str) {
    let fresh = folder.join("fresh");
    fs::write(&fresh, scenario).expect("written");
    fs::rename(fresh, folder.join("scenario")).expect("renamed");
}

impl Rig {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            intake: EvidenceIntake::new(NodeId::from("a")),
            stop: StopFlag::default(),
            thread: None,
            deadline: PATIENCE,
            synthetic: false,
            xids: XidMerger::default(),
            rounds: Arc::default(),
            next: Arc::default(),
            told: Vec::new(),
            worst: None,
        }
    }

    fn with(scenario: &str) -> Self {
        Self::new().playing(scenario)
    }

    /// Creates a rig that reports a hung call after a short deadline.
    fn impatient(scenario: &str) -> Self {
        let rig = Self {
            deadline: SHORT,
            ..Self::new()
        };
        rig.playing(scenario)
    }

    fn playing(mut self, scenario: &str) -> Self {
        place_library(self.folder.path(), false);
        self.now(scenario);
        self.start();
        self
    }

    fn start(&mut self) {
        let library = self.folder.path().join(LIBRARY);
        let mut environment = vec![(CALLS_OF.into(), library.into())];
        environment.extend((self.deadline == SHORT).then(|| (HANGS.into(), "1".into())));
        let gpu = GpuCollector {
            process: LibraryCommand {
                words: vec![
                    std::env::current_exe().expect("this test has a file").into(),
                    "collectors::gpu::tests::the_process_that_calls_the_library".into(),
                    "--exact".into(),
                ],
                environment,
            },
            interval: Duration::from_millis(5),
            deadline: self.deadline,
            reload: Duration::from_millis(20),
            scenario: self.synthetic.then(|| self.folder.path().join("scenario")),
            xids: self.xids.clone(),
            knowledge: CatalogueHandle::default(),
            intake: self.intake.clone(),
            stop: self.stop.clone(),
        };
        let rounds = Arc::clone(&self.rounds);
        let next = Arc::clone(&self.next);
        let folder = self.folder.path().to_owned();
        let round = move || {
            if let Some(scenario) = next.lock().expect("no test panics with it").take() {
                replace_scenario(&folder, &scenario);
            }
            rounds.fetch_add(1, Ordering::SeqCst);
        };
        self.thread = Some(std::thread::spawn(move || gpu.run_counted(round)));
    }

    /// Sets another scenario from the next poll on: a poll reads all of it or nothing, so that findings come in the
    /// order of one poll.
    fn now(&self, scenario: &str) {
        match &self.thread {
            None => replace_scenario(self.folder.path(), scenario),
            Some(_) => *self.next.lock().expect("no test panics with it") = Some(scenario.to_owned()),
        }
    }

    /// Waits until this many findings were reported in all, and returns them.
    fn told(&mut self, count: usize) -> &[String] {
        let deadline = Instant::now() + PATIENCE;
        while self.told.len() < count && Instant::now() < deadline {
            self.drain();
            self.stop.wait(Duration::from_millis(2));
        }
        &self.told
    }

    fn drain(&mut self) {
        for sighting in self.intake.drain() {
            let marks = sighting.marks.iter();
            let worst = marks.filter_map(|mark| mark.fields.get("gpu.nvlink_worst")).next_back();
            self.worst = worst.map(str::to_owned).or(self.worst.take());
            self.told.push(tell(&sighting));
        }
    }

    /// Waits until the collector has polled a few times after a change that must not be reported.
    fn settle(&mut self) {
        let first = self.rounds.load(Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        while self.rounds.load(Ordering::SeqCst) < first + 4 {
            assert!(Instant::now() < deadline, "the collector looks again");
            self.stop.wait(Duration::from_millis(2));
        }
        self.drain();
    }

    /// Stops the collector.
    fn end(&mut self) {
        self.stop.stop();
        let thread = self.thread.take().expect("it was started");
        thread.join().expect("the collector does not panic");
    }
}

fn tell(sighting: &PendingEvidence) -> String {
    let class = sighting.marks.first().map_or("-", |mark| mark.class.as_str());
    let class = format!("{class}{}", if sighting.synthetic { " (synthetic)" } else { "" });
    let what = match &sighting.body {
        EvidenceBody::Line { text, .. } => text.clone(),
        EvidenceBody::Sample { metric, value, .. } => format!("{metric} {value}"),
        EvidenceBody::Gap { what, .. } => format!("gap: {what}"),
        other => format!("{other:?}"),
    };
    format!("{} | {class} | {what}", sighting.entity)
}

const HEALTHY: &str = "count 2\naddress 0 9B\naddress 1 BB\ntemperature 0 40\ntemperature 1 41\n\
                       slowdown 0 87\nslowdown 1 87\necc 0 0\necc 1 4\npending 0 0\nremapped 0 0\nunrepaired 0 0\nreasons 0 0\n";

#[test]
fn healthy_devices_are_no_news_and_what_goes_wrong_is_named_by_class_and_address() {
    let mut rig = Rig::with(HEALTHY);
    rig.settle();
    assert!(rig.told.is_empty(), "{:?}", rig.told);
    rig.now(&HEALTHY.replace("temperature 1 41", "temperature 1 90"));
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:bb:00 | gpu-thermal | gpu.temperature 90"
    );
    rig.now(&HEALTHY.replace("ecc 1 4", "ecc 1 6"));
    rig.told(3);
    let cool = &rig.told[1];
    let ecc = &rig.told[2];
    assert_eq!(cool, "node a, gpu 0000:bb:00 | - | gpu.temperature 41");
    assert_eq!(
        ecc,
        "node a, gpu 0000:bb:00 | gpu-ecc-uncorrectable | gpu.ecc_uncorrected 6"
    );
    let repair = HEALTHY
        .replace("remapped 0 0", "remapped 0 1")
        .replace("unrepaired 0 0", "unrepaired 0 1");
    rig.now(&repair.replace("ecc 1 4", "ecc 1 6"));
    rig.told(5);
    assert_eq!(
        rig.told[3],
        "node a, gpu 0000:9b:00 | gpu-row-remap-pending | gpu.repair_pending 1"
    );
    assert_eq!(
        rig.told[4],
        "node a, gpu 0000:9b:00 | gpu-row-remap-failure | gpu.repair_failed 1"
    );
    rig.end();
}

#[test]
fn a_lost_device_is_told_once_and_told_again_when_it_is_back() {
    let mut rig = Rig::with(HEALTHY);
    rig.settle();
    rig.now(&format!("{HEALTHY}error 0 15\n"));
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:9b:00 | gpu-fallen-off-bus | gpu.lost 1"
    );
    rig.settle();
    rig.now(HEALTHY);
    rig.told(2);
    assert_eq!(rig.told[1..], ["node a, gpu 0000:9b:00 | - | gpu.lost 0"]);
    rig.end();
}

/// The others move up when one is not listed: the missing device is reported and not the last one.
#[test]
fn a_device_that_is_not_listed_any_more_is_the_one_whose_address_is_missing() {
    let mut rig = Rig::with(HEALTHY);
    rig.settle();
    rig.now("count 1\naddress 0 BB\ntemperature 0 41\nslowdown 0 87\n");
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:9b:00 | gpu-fallen-off-bus | gpu.lost 1"
    );
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    rig.now(HEALTHY);
    assert_eq!(rig.told(2)[1], "node a, gpu 0000:9b:00 | - | gpu.lost 0");
    rig.end();
}

#[test]
fn a_device_that_may_not_be_asked_is_not_called_lost() {
    let mut rig = Rig::with(HEALTHY);
    rig.settle();
    for code in [4, 999] {
        rig.now(&format!("{HEALTHY}error 0 {code}\n"));
        rig.settle();
        assert!(rig.told.is_empty(), "{code}: {:?}", rig.told);
    }
    rig.end();
}

/// RG-12.
#[test]
fn a_call_that_never_returns_is_evidence_once_and_its_process_is_replaced() {
    let mut rig = Rig::impatient(HEALTHY);
    rig.settle();
    rig.now(&format!("{HEALTHY}hang temperature\n"));
    let told = rig.told(1)[0].clone();
    // Either device may have been next when the call began to hang.
    let device = told.strip_prefix(
        "node a | gpu-driver-fault | the GPU management library has not answered for 1 s in: \
         read the temperature of device ",
    );
    assert!(matches!(device, Some("0000:9b:00" | "0000:bb:00")), "{told}");
    // Further processes that hang in the same call are not reported.
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    rig.now(HEALTHY);
    assert_eq!(rig.told(2)[1], "node a | - | the GPU management library answers again");
    rig.now(&format!("{HEALTHY}hang ecc\n"));
    assert!(
        rig.told(3)[2].contains("in: read the ECC errors of device 0000:"),
        "{:?}",
        rig.told
    );
    rig.end();
}

#[test]
fn a_library_that_is_not_there_is_named_once_and_loaded_when_it_comes() {
    let mut rig = Rig::new();
    rig.now(HEALTHY);
    rig.start();
    let path = rig.folder.path().join("libfake.so").display().to_string();
    let told = rig.told(1)[0].clone();
    assert!(
        told.starts_with("node a | - | gap: GPUs are not watched: cannot load ") && told.contains(&path),
        "{told}"
    );
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    place_library(rig.folder.path(), false);
    // A violation at the first poll is reported, because it is present.
    rig.now(&HEALTHY.replace("temperature 0 40", "temperature 0 99"));
    assert_eq!(
        rig.told(2)[1],
        "node a, gpu 0000:9b:00 | gpu-thermal | gpu.temperature 99"
    );
    rig.end();
}

#[test]
fn a_driver_that_is_unloaded_is_a_gap_and_found_again() {
    let mut rig = Rig::with(HEALTHY);
    rig.settle();
    rig.now("fail 9\n");
    let told = rig.told(1)[0].clone();
    assert!(told.starts_with("node a | - | gap: GPUs are not watched: "), "{told}");
    rig.now(&HEALTHY.replace("temperature 0 40", "temperature 0 99"));
    assert_eq!(
        rig.told(2)[1],
        "node a, gpu 0000:9b:00 | gpu-thermal | gpu.temperature 99"
    );
    rig.end();
}

#[test]
fn an_old_driver_tells_what_it_has() {
    let mut rig = Rig::new();
    place_library(rig.folder.path(), true);
    rig.now(HEALTHY);
    rig.start();
    rig.settle();
    assert!(rig.told.is_empty(), "{:?}", rig.told);
    rig.now(&format!("{HEALTHY}remapped 0 1\nxid 0 79\necc 0 3\n"));
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:9b:00 | gpu-ecc-uncorrectable | gpu.ecc_uncorrected 3"
    );
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    rig.end();
}

#[test]
fn links_fields_and_the_word_of_the_driver_are_read() {
    let healthy = format!("{HEALTHY}nvlinks * 18\nrecovery * 0\nnvlink-recoveries * 0\n");
    let mut rig = Rig::with(&healthy);
    rig.settle();
    rig.now(&format!(
        "{healthy}nvlink-down 1 3\nnvlink-recoveries 1 2\nrecovery 1 1\n"
    ));
    rig.told(3);
    assert_eq!(
        rig.told,
        [
            "node a, gpu 0000:bb:00 | gpu-recovery-action | gpu.recovery_action 1",
            "node a, gpu 0000:bb:00 | gpu-nvlink-error | gpu.nvlinks_active 17",
            "node a, gpu 0000:bb:00 | gpu-nvlink-error | gpu.nvlink_recoveries 2",
        ]
    );
    rig.end();
}

#[test]
fn links_to_the_processor_are_read_where_there_are_some() {
    let healthy = format!("{HEALTHY}c2c-links 0 10\nc2c-active 0 10\nc2c-errors 0 4\n");
    let mut rig = Rig::with(&healthy);
    rig.settle();
    rig.now(&format!("{healthy}c2c-active 0 9\nc2c-errors 0 5\n"));
    rig.told(2);
    assert_eq!(
        rig.told,
        [
            "node a, gpu 0000:9b:00 | gpu-nvlink-error | gpu.c2c_links_active 9",
            "node a, gpu 0000:9b:00 | gpu-nvlink-error | gpu.c2c_errors 5",
        ]
    );
    rig.end();
}

/// An event waits for the line of the kernel log; here none comes.
#[test]
fn an_event_of_the_library_is_a_finding_of_the_class_that_the_kernel_log_would_have() {
    let mut rig = Rig::with(&format!("{HEALTHY}xid 1 48\n"));
    rig.settle();
    rig.now(&format!("{HEALTHY}xid 1 48\nxid 0 79\n"));
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:9b:00 | gpu-fallen-off-bus | \
         NVRM: Xid (PCI:0000:9b:00): 79, reported by the GPU management library"
    );
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    rig.end();
}

/// RG-11: an unknown word would be a fault that is never injected.
#[test]
fn a_scenario_with_a_mistake_is_told_with_its_line_and_played_when_it_is_put_right() {
    let mut rig = Rig::new();
    rig.synthetic = true;
    place_library(rig.folder.path(), false);
    rig.now(&format!("{HEALTHY}temprature 0 99\n"));
    rig.start();
    let told = rig.told(1)[0].clone();
    let line = HEALTHY.lines().count() + 1;
    assert!(
        told.contains(&format!(
            "scenario means nothing at line {line}: `temprature` is not known"
        )),
        "{told}"
    );
    rig.now(&HEALTHY.replace("temperature 0 40", "temperature 0 99"));
    assert!(rig.told(2)[1].ends_with("gpu.temperature 99"), "{:?}", rig.told);
    rig.end();
}

#[test]
fn everything_of_a_scenario_is_marked_as_synthetic() {
    let rig = Rig {
        synthetic: true,
        deadline: SHORT,
        ..Rig::new()
    };
    let mut rig = rig.playing(&HEALTHY.replace("temperature 0 40", "temperature 0 99"));
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:9b:00 | gpu-thermal (synthetic) | gpu.temperature 99"
    );
    rig.now(&format!("{HEALTHY}temperature 0 99\nhang ecc\n"));
    let told = rig.told(2)[1].clone();
    assert!(
        told.starts_with("node a | gpu-driver-fault (synthetic) | the GPU management library"),
        "{told}"
    );
    rig.end();
}

/// A scenario plays from the moment it is set.
#[test]
fn a_scenario_plays_out_by_itself() {
    let mut rig = Rig::with(&format!(
        "{HEALTHY}at 100ms temperature 1 95\nat 300ms error 0 15\nat 9999s temperature 0 99\n"
    ));
    rig.told(2);
    rig.settle();
    rig.told.sort();
    assert_eq!(
        rig.told,
        [
            "node a, gpu 0000:9b:00 | gpu-fallen-off-bus | gpu.lost 1",
            "node a, gpu 0000:bb:00 | gpu-thermal | gpu.temperature 95",
        ]
    );
    rig.end();
}
