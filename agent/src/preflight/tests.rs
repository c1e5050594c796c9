#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rankguard_faults::Catalogue;

use super::*;

/// Returns a node without requirements, with its own procfs and sysfs trees.
fn need(root: &Path) -> JobRequirements {
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::create_dir_all(root.join("sys")).unwrap();
    fs::write(
        root.join("proc/meminfo"),
        "MemTotal: 100 kB\nMemAvailable: 4194304 kB\n",
    )
    .unwrap();
    JobRequirements {
        proc_root: root.join("proc"),
        sysfs_root: root.join("sys"),
        shm_root: root.to_owned(),
        ..JobRequirements::default()
    }
}

fn verdicts(need: &JobRequirements, check: &str) -> Vec<(String, CheckVerdict, String)> {
    let made = preflight(need).into_iter().filter(|made| made.check == check);
    made.map(|made| (made.subject, made.verdict, made.class.to_string()))
        .collect()
}

#[test]
fn a_node_of_which_nothing_is_asked_does_not_fail() {
    let root = tempfile::tempdir().unwrap();
    let checks = preflight(&need(root.path()));
    assert!(
        checks.iter().all(|check| check.verdict != CheckVerdict::Fail),
        "{checks:#?}"
    );
    for name in ["gpus", "memory", "shm", "clock", "links", "limit"] {
        assert!(checks.iter().any(|check| check.check == name), "{name}");
    }
}

#[test]
fn every_check_prevents_a_class_and_has_advice_if_it_fails() {
    let root = tempfile::tempdir().unwrap();
    let need = JobRequirements {
        paths: vec!["/no/such/path".into()],
        write_paths: vec!["/proc".into(), root.path().into()],
        commands: vec!["no-such-program".into(), "sh".into()],
        imports: vec!["no_such_module_at_all".into(), "os; evil".into()],
        ports: vec![0],
        gpus: Some(8),
        links: Some(8),
        disk_bytes: Some(u64::MAX),
        memory_bytes: Some(u64::MAX),
        shm_bytes: Some(u64::MAX),
        ..need(root.path())
    };
    let checks = preflight(&need);
    let failed = checks
        .iter()
        .filter(|check| check.verdict == CheckVerdict::Fail)
        .count();
    assert!(failed >= 9, "{checks:#?}");
    for check in checks {
        assert!(Catalogue::builtin().class(&check.class).is_some(), "{check:?}");
        assert!(!check.prevents.is_empty(), "{check:?}");
        assert_eq!(
            check.verdict == CheckVerdict::Ok,
            check.advice.is_empty() && !check.found.is_empty(),
            "{check:?}"
        );
    }
}

#[test]
fn paths_that_are_missing_forbidden_or_fine() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    fs::write(&data, "x").unwrap();
    let need = JobRequirements {
        paths: vec![data.clone(), root.path().into(), root.path().join("missing/deep")],
        write_paths: vec![root.path().into(), data.clone()],
        ..need(root.path())
    };
    let paths: Vec<CheckVerdict> = verdicts(&need, "path").into_iter().map(|it| it.1).collect();
    assert_eq!(paths, [CheckVerdict::Ok, CheckVerdict::Ok, CheckVerdict::Fail]);
    let folders: Vec<_> = verdicts(&need, "write-path")
        .into_iter()
        .map(|it| (it.1, it.2))
        .collect();
    assert_eq!(folders[0], (CheckVerdict::Ok, "permission-denied".to_owned()));
    assert_eq!(folders[1], (CheckVerdict::Fail, "path-not-found".to_owned()));
    // The test file was removed.
    let left: Vec<_> = fs::read_dir(root.path())
        .unwrap()
        .flatten()
        .map(|it| it.file_name())
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
    let missing = preflight(&need).into_iter().find(|it| it.subject.ends_with("deep"));
    let advice = missing.unwrap().advice;
    assert!(
        advice.contains(&format!("{} exists;", root.path().display())),
        "{advice}"
    );
}

/// Finding 15 of the first operator: an existing folder without regular files was "not there".
#[test]
fn a_folder_that_exists_is_not_called_missing() {
    let root = tempfile::tempdir().unwrap();
    let need = JobRequirements {
        write_paths: vec!["/proc".into()],
        ..need(root.path())
    };
    let check = preflight(&need)
        .into_iter()
        .find(|it| it.check == "write-path")
        .unwrap();
    assert_eq!(check.verdict, CheckVerdict::Fail);
    assert!(!check.found.contains("exist"), "{check:?}");
    assert_eq!(check.class.as_str(), "permission-denied");
}

#[test]
fn commands_are_looked_for_as_the_shell_does() {
    let root = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str, mode: u32| {
        let path = root.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let path = root.path().as_os_str().to_owned();
    let ask = |word: &str| {
        let check = program::command(word, &path);
        (check.verdict, check.class.to_string())
    };
    script("good", "#!/bin/sh\n", 0o755);
    script("plain", "#!/bin/sh\n", 0o644);
    script("lost", "#!/no/such/python\n", 0o755);
    assert_eq!(ask("good").0, CheckVerdict::Ok);
    assert_eq!(ask("plain"), (CheckVerdict::Fail, "permission-denied".to_owned()));
    assert_eq!(ask("lost"), (CheckVerdict::Fail, "path-not-found".to_owned()));
    assert_eq!(ask("absent"), (CheckVerdict::Fail, "path-not-found".to_owned()));
    assert_eq!(ask(&root.path().display().to_string()).0, CheckVerdict::Fail);
}

#[test]
fn the_job_s_python_is_asked_and_one_that_hangs_is_ended() {
    let root = tempfile::tempdir().unwrap();
    let python = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let ask = |python: String, deadline| {
        let need = JobRequirements {
            imports: vec!["torch".to_owned()],
            python,
            deadline: Duration::from_millis(deadline),
            ..need(root.path())
        };
        verdicts(&need, "import").remove(0)
    };
    let fine = python("fine", "#!/bin/sh\necho 2.4.0 /lib/torch.py\n");
    assert_eq!(ask(fine, 60_000).1, CheckVerdict::Ok);
    let broken = python(
        "broken",
        "#!/bin/sh\necho 'ImportError: libcudart.so.12: cannot open' >&2\nexit 1\n",
    );
    assert_eq!(
        ask(broken, 60_000),
        ("torch".to_owned(), CheckVerdict::Fail, "library-missing".to_owned())
    );
    let slow = python("slow", "#!/bin/sh\nsleep 6543\n");
    assert_eq!(ask(slow, 200).1, CheckVerdict::Unknown);
}

#[test]
fn a_port_in_use_is_not_free() {
    let root = tempfile::tempdir().unwrap();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let need = JobRequirements {
        ports: vec![held.local_addr().unwrap().port()],
        ..need(root.path())
    };
    assert_eq!(verdicts(&need, "port")[0].1, CheckVerdict::Fail);
}

#[test]
fn memory_is_what_the_host_and_the_cgroup_would_give() {
    let root = tempfile::tempdir().unwrap();
    let ask = |gib: u64| {
        let need = JobRequirements {
            memory_bytes: Some(gib << 30),
            ..need(root.path())
        };
        verdicts(&need, "memory")[0].1
    };
    assert_eq!((ask(3), ask(5)), (CheckVerdict::Ok, CheckVerdict::Fail));
    fs::write(root.path().join("proc/self/cgroup"), "0::/pods/one\n").unwrap();
    let pods = root.path().join("sys/fs/cgroup/pods");
    fs::create_dir_all(pods.join("one")).unwrap();
    fs::write(pods.join("one/memory.max"), "max\n").unwrap();
    fs::write(pods.join("memory.max"), "2147483648\n").unwrap();
    fs::write(pods.join("memory.current"), "1073741824\n").unwrap();
    assert_eq!((ask(1), ask(2)), (CheckVerdict::Ok, CheckVerdict::Fail));
    fs::write(root.path().join("proc/meminfo"), "garbage\n\0MemAvailable: -3 kB").unwrap();
    let need = JobRequirements {
        proc_root: root.path().join("proc"),
        ..JobRequirements::default()
    };
    assert_eq!(host::checks(&need)[0].verdict, CheckVerdict::Unknown);
}

#[test]
fn adapters_that_are_down_or_slower_than_their_sisters_are_named() {
    let root = tempfile::tempdir().unwrap();
    let need = need(root.path());
    let port = |device: &str, state: &str, rate: &str| {
        let folder = root.path().join(format!("sys/class/infiniband/{device}/ports/1"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("state"), state).unwrap();
        fs::write(folder.join("rate"), rate).unwrap();
    };
    port("mlx5_0", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
    port("mlx5_1", "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n");
    port("mlx5_2", "1: DOWN\n", "10 Gb/sec\n");
    port("mlx5_3", "\0garbage", "garbage");
    assert_eq!(verdicts(&need, "links")[0].1, CheckVerdict::Ok);
    let down = verdicts(&need, "link");
    assert_eq!(down.len(), 2);
    assert!(down.iter().all(|(_, verdict, _)| *verdict == CheckVerdict::Warn));
    assert_eq!(verdicts(&need, "link-rates")[0].1, CheckVerdict::Warn);
    let more = JobRequirements { links: Some(4), ..need };
    assert_eq!(verdicts(&more, "links")[0].1, CheckVerdict::Fail);
}

#[test]
fn gpus_that_are_wanted_and_absent_fail_and_a_loaded_driver_without_library_is_unknown() {
    let root = tempfile::tempdir().unwrap();
    let need = need(root.path());
    assert_eq!(verdicts(&need, "gpus")[0].1, CheckVerdict::Ok);
    fs::create_dir_all(root.path().join("proc/driver/nvidia")).unwrap();
    let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n";
    fs::write(root.path().join("proc/driver/nvidia/version"), version).unwrap();
    assert_eq!(verdicts(&need, "gpus")[0].1, CheckVerdict::Unknown);
    let wanting = JobRequirements { gpus: Some(1), ..need };
    assert_eq!(verdicts(&wanting, "gpus")[0].1, CheckVerdict::Fail);
}

#[test]
fn a_check_without_an_answer_ends_at_the_deadline() {
    let (_hold, never) = std::sync::mpsc::channel::<()>();
    let pending = probe::PendingCheck {
        probe: probe::BlockingProbe::start(move || {
            let _ = never.recv();
            PreflightCheck::new("path", "/nfs", "path-not-found")
        }),
        unanswered: PreflightCheck::new("path", "/nfs", "filesystem-hang"),
        verdict: CheckVerdict::Fail,
        advice: "is its server up?",
    };
    let check = pending.take(Duration::from_millis(20));
    assert_eq!(
        (check.verdict, check.class.as_str()),
        (CheckVerdict::Fail, "filesystem-hang")
    );
}
