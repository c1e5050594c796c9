//! Requirements that follow from a job's launch, and the values that must be equal wherever its ranks run.
//!
//! From the command: the program, a script, a module (`python -m`), the working directory, the checkpoint store. The
//! job may declare further ones in its environment: modules in `RANKGUARD_PREFLIGHT_IMPORTS` (separated by commas),
//! paths in `RANKGUARD_PREFLIGHT_PATHS` (by colons). Absent: programs inside containers, data that only the program
//! knows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_model::{FailedCheck, PreflightOrder};

use super::{CheckVerdict, JobRequirements, PreflightCheck, ProgramEnvironment, gpu, preflight};

/// Variables in which a job declares further requirements.
const IMPORTS: &str = "RANKGUARD_PREFLIGHT_IMPORTS";
const PATHS: &str = "RANKGUARD_PREFLIGHT_PATHS";
/// Most bytes of a file that are digested.
const DIGESTED: u64 = 64 << 20;
/// Longest value of a variable that is reported unhashed, bytes.
const SHORT: usize = 128;

/// Variables that change the behaviour of ranks, by prefix and by name.
const PREFIXES: [&str; 9] = [
    "CUDA_", "FI_", "MKL_", "NCCL_", "OMP_", "PYTHON", "PYTORCH_", "TORCH_", "UCX_",
];
const NAMES: [&str; 3] = ["LD_LIBRARY_PATH", "LD_PRELOAD", "PATH"];

/// Checks this node for a job. Returns the failed checks, and the values that must be equal on all its nodes.
pub(crate) fn for_job(wanted: &PreflightOrder, node: &JobRequirements) -> (Vec<FailedCheck>, BTreeMap<String, String>) {
    let need = need(wanted, node);
    let checks = preflight(&need);
    let environment = environment(wanted, &need, &checks);
    let failed = checks.into_iter().filter(|check| check.verdict == CheckVerdict::Fail);
    let failed = failed.map(|check| FailedCheck {
        check: check.check.to_owned(),
        subject: check.subject,
        class: check.class,
        found: check.found,
        advice: check.advice,
    });
    (failed.collect(), environment)
}

fn need(wanted: &PreflightOrder, node: &JobRequirements) -> JobRequirements {
    let workdir = wanted.workdir.as_ref().map(PathBuf::from);
    let program = wanted.command.first().cloned();
    let listed = |name: &str, between: char| -> Vec<String> {
        let text = wanted.env.get(name).map(String::as_str).unwrap_or_default();
        text.split(between)
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut paths: Vec<PathBuf> = workdir.iter().cloned().collect();
    paths.extend(script(wanted));
    paths.extend(listed(PATHS, ':').iter().map(|path| place(workdir.as_deref(), path)));
    let python = program.clone().filter(|program| is_python(program));
    JobRequirements {
        paths,
        write_paths: wanted
            .write_paths
            .iter()
            .map(|path| place(workdir.as_deref(), path))
            .collect(),
        // A relative program path is resolved from the ranks' working directory.
        commands: program
            .map(|program| {
                if program.contains('/') {
                    place(workdir.as_deref(), &program).display().to_string()
                } else {
                    program
                }
            })
            .into_iter()
            .collect(),
        imports: listed(IMPORTS, ','),
        python: python.unwrap_or_else(|| node.python.clone()),
        surroundings: ProgramEnvironment {
            env: wanted.env.clone(),
            workdir: workdir.filter(|path| path.is_dir()),
        },
        deadline: Duration::from_millis(wanted.deadline_ms),
        ..node.clone()
    }
}

fn is_python(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.strip_prefix("python")
        .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Returns the script of a Python command: the first word that is not an option, unless a module or program text
/// precedes it.
fn script(wanted: &PreflightOrder) -> Option<PathBuf> {
    let (program, words) = wanted.command.split_first()?;
    if !is_python(program) {
        return None;
    }
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" | "-c" | "-" => return None,
            "-W" | "-X" => drop(words.next()),
            option if option.starts_with('-') => {}
            script => return Some(place(wanted.workdir.as_deref().map(Path::new), script)),
        }
    }
    None
}

fn place(workdir: Option<&Path>, path: &str) -> PathBuf {
    workdir.map_or_else(|| PathBuf::from(path), |workdir| workdir.join(path))
}

/// Returns the values that must be equal. A value that cannot be read is absent, which is a difference too.
fn environment(wanted: &PreflightOrder, need: &JobRequirements, checks: &[PreflightCheck]) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let ok = |name: &str| {
        checks
            .iter()
            .filter(|check| check.check == name && check.verdict == CheckVerdict::Ok)
            .collect::<Vec<_>>()
    };
    for check in ok("command") {
        // The check found the program's path, which may differ between nodes for the same program.
        values.extend(digest(Path::new(&check.found)).map(|digest| ("program".to_owned(), digest)));
    }
    if let Some(script) = script(wanted) {
        values.extend(digest(&script).map(|digest| ("script".to_owned(), digest)));
    }
    for check in ok("import") {
        let version = check.found.split(' ').next().unwrap_or_default();
        values.insert(format!("import {}", check.subject), version.to_owned());
    }
    values.extend(gpu::kernel_driver(need).map(|version| ("gpu-driver".to_owned(), version)));
    let release = std::fs::read_to_string(need.proc_root.join("sys/kernel/osrelease")).unwrap_or_default();
    if !release.trim().is_empty() {
        values.insert("kernel".to_owned(), release.trim().to_owned());
    }
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| matters(name)) else {
            continue;
        };
        let value = value.to_string_lossy();
        values.insert(format!("env {name}"), shown(&value));
    }
    // A variable of the job overrides the agent's own.
    for (name, value) in wanted.env.iter().filter(|(name, _)| matters(name)) {
        values.insert(format!("env {name}"), shown(value));
    }
    values
}

fn matters(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn shown(value: &str) -> String {
    if value.len() <= SHORT {
        value.to_owned()
    } else {
        format!("blake3 {}", blake3::hash(value.as_bytes()).to_hex())
    }
}

fn digest(path: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path).ok()?.take(DIGESTED);
    let mut bytes = vec![0; 256 << 10];
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(hasher.finalize().to_hex().to_string()),
            count => drop(hasher.update(&bytes[..count])),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use rankguard_model::{Generation, JobId};

    use super::*;

    fn wanted(command: &[&str], workdir: &Path) -> PreflightOrder {
        PreflightOrder {
            job: JobId::from("llm"),
            generation: Generation(1),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::new(),
            workdir: Some(workdir.display().to_string()),
            write_paths: vec!["store".to_owned()],
            deadline_ms: 60_000,
            between: Vec::new(),
            links: Vec::new(),
        }
    }

    fn node(root: &Path) -> JobRequirements {
        fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        fs::write(root.join("proc/sys/kernel/osrelease"), "6.8.0\n").unwrap();
        JobRequirements {
            proc_root: root.join("proc"),
            sysfs_root: root.join("sys"),
            shm_root: root.to_owned(),
            ..JobRequirements::default()
        }
    }

    #[test]
    fn missing_paths_are_reported_with_the_failures_they_cause() {
        let root = tempfile::tempdir().unwrap();
        let mut wanted = wanted(&["sh", "-c", "true"], root.path());
        wanted.env.insert(PATHS.to_owned(), "data/train.bin:".to_owned());
        let (failed, _) = for_job(&wanted, &node(root.path()));
        let found: Vec<_> = failed.iter().map(|it| (it.check.as_str(), it.class.as_str())).collect();
        assert_eq!(
            found,
            [("path", "path-not-found"), ("write-path", "path-not-found")],
            "{failed:?}"
        );
        assert!(failed[0].subject.ends_with("data/train.bin"));
        fs::create_dir_all(root.path().join("store")).unwrap();
        fs::create_dir_all(root.path().join("data")).unwrap();
        fs::write(root.path().join("data/train.bin"), "x").unwrap();
        assert_eq!(for_job(&wanted, &node(root.path())).0, []);
        wanted.command = vec!["no-such-program-at-all".to_owned()];
        let failed = for_job(&wanted, &node(root.path())).0;
        assert_eq!(failed[0].check, "command");
    }

    #[test]
    fn what_a_python_runs_is_found_among_its_options() {
        let root = Path::new("/job");
        let script = |words: &[&str]| script(&wanted(words, root)).map(|path| path.display().to_string());
        assert_eq!(
            script(&["python3", "-u", "-X", "dev", "train.py", "x.py"]),
            Some("/job/train.py".to_owned())
        );
        assert_eq!(
            script(&["/usr/bin/python3.11", "/abs/t.py"]),
            Some("/abs/t.py".to_owned())
        );
        assert_eq!(script(&["python", "-m", "train", "x.py"]), None);
        assert_eq!(script(&["python", "-c", "x.py"]), None);
        assert_eq!(script(&["pythonish", "x.py"]), None);
        assert_eq!(script(&["bash", "x.py"]), None);
    }

    #[test]
    fn the_same_files_and_variables_give_the_same_environment_and_others_do_not() {
        let one = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let look = |root: &Path, script: &str, interface: &str| {
            fs::create_dir_all(root.join("store")).unwrap();
            fs::write(root.join("train.py"), script).unwrap();
            let mut wanted = wanted(&["python3", "train.py"], root);
            wanted.env.insert("NCCL_SOCKET_IFNAME".to_owned(), interface.to_owned());
            wanted.env.insert("SECRET".to_owned(), "x".to_owned());
            for_job(&wanted, &node(root)).1
        };
        let first = look(one.path(), "print(1)", "eth0");
        assert_eq!(first, look(other.path(), "print(1)", "eth0"));
        assert_eq!(first["kernel"], "6.8.0");
        assert_eq!(first["env NCCL_SOCKET_IFNAME"], "eth0");
        assert!(first["script"].len() == 64 && !first.keys().any(|name| name.contains("SECRET")));
        let second = look(other.path(), "print(2)", "eth1");
        let differing: Vec<&str> = first
            .keys()
            .filter(|name| first[*name] != second[*name])
            .map(String::as_str)
            .collect();
        assert_eq!(differing, ["env NCCL_SOCKET_IFNAME", "script"]);
    }
}
