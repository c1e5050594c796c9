//! Checks of programs and Python modules.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use rankguard_faults::classes;
use rankguard_model::ProcessExit;
use rustix::fs::{Access, access};

use super::files::refused;
use super::{CheckVerdict, JobRequirements, PreflightCheck, ProgramEnvironment};
use crate::bounded::{self, RunEnd, RunLimits};

/// Bytes of a script that are read for its first line; the kernel reads 256 too.
const FIRST_LINE: usize = 256;

pub(super) fn checks(need: &JobRequirements) -> Vec<PreflightCheck> {
    let path = need.surroundings.path();
    let commands = need.commands.iter().map(|word| command(word, &path));
    let imports = need.imports.iter().map(|module| import(module, need));
    commands.chain(imports).collect()
}

/// Checks that a shell would find the program and the kernel would start it.
pub(super) fn command(word: &str, path: &OsString) -> PreflightCheck {
    let check = PreflightCheck::new("command", word, classes::PATH_NOT_FOUND);
    if word.contains('/')
        && let Err(problem) = std::fs::metadata(word)
    {
        // Also a folder that this user may not enter: the program may exist there.
        return refused(check, Path::new(word), &problem);
    }
    let found = if word.contains('/') {
        Some(PathBuf::from(word))
    } else {
        let places = std::env::split_paths(path).map(|folder| folder.join(word));
        let there: Vec<PathBuf> = places.filter(|file| file.is_file()).collect();
        let first = there.first().cloned();
        there.into_iter().find(|file| may_execute(file)).or(first)
    };
    let Some(file) = found else {
        return check.bad(
            CheckVerdict::Fail,
            format!("not found on PATH ({})", path.display()),
            "install it on this node, or use its absolute path",
        );
    };
    if !file.is_file() {
        return check.bad(
            CheckVerdict::Fail,
            format!("{} is a folder", file.display()),
            "use the path of a program",
        );
    }
    if !may_execute(&file) {
        return check.of_class(classes::PERMISSION_DENIED).bad(
            CheckVerdict::Fail,
            format!("no permission to execute {}", file.display()),
            "set its mode with chmod +x, and check that its file system is not mounted noexec",
        );
    }
    match interpreter(&file) {
        Ok(Some(interpreter)) if !may_execute(&interpreter) => check.bad(
            CheckVerdict::Fail,
            format!(
                "the interpreter {1} of {0} cannot be executed",
                file.display(),
                interpreter.display()
            ),
            "install the interpreter of its first line on this node",
        ),
        Err(problem) if problem.kind() != std::io::ErrorKind::PermissionDenied => refused(check, &file, &problem),
        // An executable program need not be readable.
        _ => check.ok(file.display().to_string()),
    }
}

/// Returns the prefix of a command that sets the job's working directory and environment.
fn around(surroundings: &ProgramEnvironment) -> Vec<OsString> {
    if *surroundings == ProgramEnvironment::default() {
        return Vec::new();
    }
    let mut words = vec![OsString::from("env")];
    if let Some(workdir) = &surroundings.workdir {
        words.extend(["-C".into(), workdir.clone().into_os_string()]);
    }
    words.extend(
        surroundings
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}").into()),
    );
    words
}

fn may_execute(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// Returns the interpreter in the first line of a script.
pub(crate) fn interpreter(file: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut start = Vec::new();
    std::fs::File::open(file)?
        .take(FIRST_LINE as u64)
        .read_to_end(&mut start)?;
    let Some(line) = start
        .strip_prefix(b"#!")
        .and_then(|rest| rest.split(|byte| *byte == b'\n').next())
    else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(line);
    Ok(line.split_ascii_whitespace().next().map(PathBuf::from))
}

/// Imports a module with the job's own Python, which also tests that all its libraries load.
fn import(module: &str, need: &JobRequirements) -> PreflightCheck {
    let check = PreflightCheck::new("import", module, classes::IMPORT_ERROR);
    let is_name = !module.is_empty()
        && module.split('.').all(|part| {
            part.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_alphanumeric() || c == '_')
        });
    if !is_name {
        return check.bad(
            CheckVerdict::Fail,
            "not a module name",
            "write it as after `import`: torch, torch.distributed",
        );
    }
    let program = "import importlib, sys\nmodule = importlib.import_module(sys.argv[1])\nprint(getattr(module, '__version__', ''), getattr(module, '__file__', '') or '')";
    let mut words = around(&need.surroundings);
    words.extend([need.python.as_str(), "-c", program, module].map(OsString::from));
    let bounds = RunLimits {
        deadline: need.deadline,
        cpu_s: None,
        memory: None,
    };
    let outcome = match bounded::run(&words, bounds) {
        Ok(outcome) => outcome,
        Err(problem) => {
            return check.bad(
                CheckVerdict::Fail,
                format!("cannot start {}: {problem}", need.python),
                "set --python to the Python of the job",
            );
        }
    };
    match outcome.end {
        RunEnd::Itself(ProcessExit::Code(0)) => {
            let version = outcome.stdout.lines().last().unwrap_or_default().trim();
            check.ok(format!("{version} by {}", need.python).trim_start().to_owned())
        }
        RunEnd::Itself(_) => {
            let why = outcome.stderr.lines().rev().find(|line| !line.trim().is_empty());
            let why = why.unwrap_or("failed without output").trim().to_owned();
            let check = if why.contains(".so") {
                check.of_class(classes::LIBRARY_MISSING)
            } else {
                check
            };
            let advice = format!(
                "install it for {} on this node, or select another Python with --python",
                need.python
            );
            check.bad(CheckVerdict::Fail, why, advice)
        }
        RunEnd::Deadline | RunEnd::Stopped => check.bad(
            CheckVerdict::Unknown,
            format!("not imported within {} s", need.deadline.as_secs_f64()),
            "check the file system; wait longer with --deadline-s",
        ),
        RunEnd::Flood => check.bad(
            CheckVerdict::Unknown,
            "the import does not stop writing output",
            "import it by hand on this node",
        ),
    }
}
