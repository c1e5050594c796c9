#![allow(clippy::unwrap_used)]

use super::*;

struct Host(tempfile::TempDir, VitalSigns, VitalSources);

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let places = VitalSources::new(&dir.path().join("proc"), &dir.path().join("sys"));
        let host = Self(dir, VitalSigns::default(), places);
        host.put("sys/devices/system/edac/mc/mc0/ce_count", "7\n");
        host.put("sys/devices/system/edac/mc/mc0/ue_count", "0\n");
        host.put("sys/devices/system/edac/mc/mc1/ce_count", "1\n");
        host.put("proc/self/cgroup", "0::/slice/agent\n");
        host.put("sys/fs/cgroup/slice/agent/memory.events", "low 0\noom 0\noom_kill 2\n");
        host.put(
            "proc/pressure/memory",
            "some avg10=1.00\nfull avg10=0.00 avg60=0.00 total=1\n",
        );
        host.put(
            "proc/self/mounts",
            "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/loop0 /snap squashfs ro 0 0\nnfs:/x /x nfs rw 0 0\n",
        );
        host
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(&mut self, synchronised: bool) -> Vec<(String, f64, Option<String>)> {
        let clock = KernelClock {
            synchronised,
            max_error_us: 0,
            offset_us: 0,
        };
        let look = self.2.snapshot(Some(clock));
        let told = self.1.changes(look).into_iter();
        told.map(|it| {
            let class = it.marks.first().map(|mark| mark.class.to_string());
            (it.metric, it.value, class)
        })
        .collect()
    }
}

fn one(metric: &str, value: f64, class: Option<&str>) -> Vec<(String, f64, Option<String>)> {
    vec![(metric.to_owned(), value, class.map(str::to_owned))]
}

#[test]
fn the_first_look_and_a_quiet_host_are_no_news() {
    let mut host = Host::new();
    assert_eq!(host.look(true), []);
    assert_eq!(host.look(true), []);
}

#[test]
fn errors_that_grow_are_told_at_their_steps() {
    let mut host = Host::new();
    host.look(true);
    host.put("sys/devices/system/edac/mc/mc0/ce_count", "106\n");
    assert_eq!(host.look(true), []);
    host.put("sys/devices/system/edac/mc/mc0/ce_count", "107\n");
    let wanted = one("host.edac_corrected", 108.0, Some("host-memory-corrected-errors"));
    assert_eq!(host.look(true), wanted);
    host.put("sys/devices/system/edac/mc/mc0/ue_count", "1\n");
    let wanted = one("host.edac_uncorrected", 1.0, Some("host-memory-fault"));
    assert_eq!(host.look(true), wanted);
    assert_eq!(host.look(true), []);
    host.put("sys/fs/cgroup/slice/agent/memory.events", "oom_kill 3\n");
    let wanted = one("host.cgroup_oom_kill", 3.0, Some("container-oom-kill"));
    assert_eq!(host.look(true), wanted);
    // The same kernel may have the memory controller in a version 1 hierarchy.
    let mut host = Host::new();
    host.put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/slice/agent\n0::/\n");
    let kills = |host: &Host, count| {
        let text = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n");
        host.put("sys/fs/cgroup/memory/slice/agent/memory.oom_control", &text);
    };
    kills(&host, 1);
    assert_eq!(host.look(true), []);
    kills(&host, 2);
    let wanted = one("host.cgroup_oom_kill", 2.0, Some("container-oom-kill"));
    assert_eq!(host.look(true), wanted);
}

#[test]
fn files_that_vanish_and_counters_of_garbage_are_not_known() {
    let mut host = Host::new();
    host.look(true);
    for text in ["-1\n", "4294967295\n", "\0\u{fffd}x\n", "", "18446744073709551615\n"] {
        host.put("sys/devices/system/edac/mc/mc0/ue_count", text);
        assert_eq!(host.look(true), [], "{text:?}");
    }
    fs::remove_dir_all(host.0.path().join("sys")).unwrap();
    fs::remove_dir_all(host.0.path().join("proc")).unwrap();
    assert_eq!(host.look(true), []);
}

#[test]
fn pressure_is_told_when_it_comes_and_when_it_goes() {
    let mut host = Host::new();
    let mut at = |share: &str| {
        host.put("proc/pressure/memory", &format!("full avg10={share} avg60=0\n"));
        host.look(true)
    };
    assert_eq!(at("59.0"), []);
    assert_eq!(at("61.0"), one("host.memory_pressure_full", 61.0, None));
    assert_eq!(at("40.0"), []);
    assert_eq!(at("NaN"), []);
    assert_eq!(at("10.0"), one("host.memory_pressure_full", 10.0, None));
    let mut cpu = |share: &str| {
        host.put(
            "proc/pressure/cpu",
            &format!("some avg10={share} avg60=0\nfull avg10=0.00\n"),
        );
        host.look(true)
    };
    assert_eq!(cpu("89.0"), []);
    assert_eq!(cpu("95.5"), one("host.cpu_pressure_some", 95.5, None));
    host.put("proc/pressure/io", "some avg10=99.00\nfull avg10=70.00 avg60=0\n");
    assert_eq!(host.look(true), one("host.io_pressure_full", 70.0, None));
    let now = host.1.pressures().into_iter();
    let now: Vec<_> = now
        .map(|it| format!("{} {} {} {}", it.resource, it.who, it.percent, it.high))
        .collect();
    assert_eq!(now, ["memory full 10 false", "io full 70 true", "cpu some 95.5 true"]);
}

#[test]
fn a_disk_that_goes_read_only_and_a_clock_that_nobody_keeps_are_told() {
    let mut host = Host::new();
    host.look(true);
    host.put("proc/self/mounts", "/dev/sda1 / ext4 ro,relatime 0 0\n");
    let wanted = one("host.writable /", 0.0, Some("filesystem-io-error"));
    assert_eq!(host.look(true), wanted);
    let wanted = one("host.clock_synchronised", 0.0, Some("clock-skew"));
    assert_eq!(host.look(false), wanted);
    assert_eq!(host.look(true), one("host.clock_synchronised", 1.0, None));
}

#[test]
fn every_class_that_is_marked_stands_in_the_catalogue() {
    let classes = COUNTERS.iter().map(|rule| rule.class);
    for class in classes.chain(["filesystem-io-error", "clock-skew"]) {
        let id = rankguard_model::ClassId::from(class);
        assert!(rankguard_faults::Catalogue::builtin().class(&id).is_some(), "{class}");
    }
}
