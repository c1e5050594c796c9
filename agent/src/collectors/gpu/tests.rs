//! The collector with a stand-in library behind the real wrapper: what the wrapper loads is what it loads on a node.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;

use rankguard_model::NodeId;
use tempfile::TempDir;

use super::*;

/// Longest time a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running collector over a library that obeys a scenario.
struct Rig {
    folder: TempDir,
    intake: Intake,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    told: Vec<String>,
}

fn build_library(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml/nvml.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args([
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
            "--crate-name",
            "fake_nvml",
            "-o",
        ])
        .arg(folder.join("libfake.so"))
        .arg(source)
        .env("FAKE_NVML_SCENARIO", folder.join("scenario"))
        .status()
        .expect("rustc, which built this test, runs");
    assert!(built.success(), "the stand-in library compiles");
}

impl Rig {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            intake: Intake::new(NodeId::from("a")),
            stop: Stop::default(),
            thread: None,
            told: Vec::new(),
        }
    }

    fn with(scenario: &str) -> Self {
        let mut rig = Self::new();
        build_library(rig.folder.path());
        rig.now(scenario);
        rig.start();
        rig
    }

    fn start(&mut self) {
        let gpu = Gpu {
            library: Some(self.folder.path().join("libfake.so")),
            interval: Duration::from_millis(5),
            deadline: Duration::from_millis(300),
            reload: Duration::from_millis(20),
            intake: self.intake.clone(),
            stop: self.stop.clone(),
        };
        self.thread = Some(std::thread::spawn(move || gpu.run()));
    }

    /// Replaces the scenario in one step, so that no call sees half of it.
    fn now(&self, scenario: &str) {
        let fresh = self.folder.path().join("fresh");
        fs::write(&fresh, scenario).expect("written");
        fs::rename(fresh, self.folder.path().join("scenario")).expect("renamed");
    }

    /// Waits until this much was told in all; gives it.
    fn told(&mut self, count: usize) -> &[String] {
        let deadline = Instant::now() + PATIENCE;
        while self.told.len() < count && Instant::now() < deadline {
            self.told.extend(self.intake.drain().iter().map(tell));
            self.stop.wait(Duration::from_millis(2));
        }
        &self.told
    }

    /// Waits until the collector has looked a few times after a change that must not be told.
    fn settle(&mut self) {
        self.stop.wait(Duration::from_millis(100));
        self.told.extend(self.intake.drain().iter().map(tell));
    }

    /// Ends the collector; says how long that took.
    fn end(&mut self) -> Duration {
        let begun = Instant::now();
        self.stop.stop();
        let thread = self.thread.take().expect("it was started");
        thread.join().expect("the collector does not panic");
        begun.elapsed()
    }
}

fn tell(sighting: &Sighting) -> String {
    let class = sighting.marks.first().map_or("-", |mark| mark.class.as_str());
    let what = match &sighting.body {
        Body::Line { text, .. } => text.clone(),
        Body::Sample { metric, value, .. } => format!("{metric} {value}"),
        Body::Gap { what, .. } => format!("gap: {what}"),
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
    let (cool, ecc) = (&rig.told[1], &rig.told[2]);
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

/// The others move up when one is not listed any more: the one that is missing is blamed, not the last one.
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
fn a_call_that_never_returns_is_evidence_once_and_holds_up_nothing() {
    let mut rig = Rig::with(HEALTHY);
    rig.settle();
    rig.now(&format!("{HEALTHY}hang temperature\n"));
    let told = rig.told(1)[0].clone();
    // Either device may have been next when the call began to hang.
    let device = told.strip_prefix(
        "node a | gpu-driver-fault | the GPU management library has not answered for 0.3 s in: \
         read the temperature of device ",
    );
    assert!(matches!(device, Some("0000:9b:00" | "0000:bb:00")), "{told}");
    rig.stop.wait(Duration::from_millis(700));
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    rig.now(HEALTHY);
    assert_eq!(rig.told(2)[1], "node a | - | the GPU management library answers again");
    rig.now(&format!("{HEALTHY}hang ecc\n"));
    assert!(
        rig.told(3)[2].ends_with("read the ECC errors of device 0000:9b:00"),
        "{:?}",
        rig.told
    );
    let took = rig.end();
    assert!(
        took < Duration::from_millis(200),
        "{took:?}: the end does not wait for the call"
    );
    // Lets the thread that was left behind go before its library is removed.
    rig.now(HEALTHY);
    rig.stop.wait(Duration::from_millis(50));
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
    build_library(rig.folder.path());
    rig.settle();
    // Hot at the first look is news: it is so now.
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
