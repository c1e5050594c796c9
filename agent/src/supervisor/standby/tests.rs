//! Standby processes with the interpreter of this machine.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{WaitOptions, waitpid};

use super::*;

fn start(variables: &[(&str, &str)]) -> RankStart {
    let words = ["python3", "-u", "train.py", "--lr", "1"].map(str::to_owned);
    RankStart {
        rank: 0,
        program: words[0].clone(),
        arguments: words[1..].to_vec(),
        environment: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        workdir: None,
        user: None,
        refused_users: Vec::new(),
        folder: "/tmp".into(),
        tracer: std::process::id(),
        umask: 0o022,
        cgroup: None,
        standby: Some(StandbyCommand::parse(&words).expect("a script")),
    }
}

fn waiting(recipe: StandbyStart) -> StandbyProcess {
    let mut standby = StandbyProcess::spawn(1, recipe).expect("started");
    let news = wait_ready(
        standby.channel.as_fd(),
        rustix::event::PollFlags::IN,
        Duration::from_secs(30),
    );
    assert!(news.expect("polled"));
    let news = standby.receive();
    assert!(
        matches!(news, Some(StandbyNews::Ready { .. })),
        "{news:?} {:?}",
        standby.last_error()
    );
    standby
}

#[test]
fn only_the_variables_of_a_rank_may_differ() {
    let path = std::env::var("PATH").expect("set");
    let base = [("PATH", path.as_str()), ("RANK", "0"), ("OMP_NUM_THREADS", "1")];
    let recipe = standby_recipe(&start(&base), &[], "x/standby".to_owned()).expect("a recipe");
    assert_eq!(recipe.start.environment.get("RANK"), None);
    let standby = waiting(recipe);
    let check = |variables: &[(&str, &str)], expect: Result<usize, &str>| {
        let found = standby.values_for(&start(variables), None);
        assert_eq!(found.map(|it| it.len()), expect.map_err(str::to_owned), "{variables:?}");
    };
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    check(
        &with(&[
            ("RANK", "3"),
            ("TORCH_FR_DUMP_TEMP_FILE", "/g2/x"),
            ("RANKGUARD_FENCE", "y"),
        ]),
        Ok(3),
    );
    check(
        &with(&[("OMP_NUM_THREADS", "2")]),
        Err("the variable OMP_NUM_THREADS differs"),
    );
    check(&with(&[("LD_PRELOAD", "x.so")]), Err("the variable LD_PRELOAD differs"));
    check(&base[..2], Err("the variable OMP_NUM_THREADS differs"));
    let mut other = start(&base);
    other.workdir = Some("/".to_owned());
    assert!(standby.values_for(&other, None).is_err());
    other = start(&base);
    let command = other.standby.as_mut().expect("set");
    command.arguments.push("--more".to_owned());
    assert_eq!(standby.values_for(&other, None), Err("the command differs".to_owned()));
    standby.kill();
}

#[test]
fn a_failed_import_is_reported_with_its_error() {
    let path = std::env::var("PATH").expect("set");
    let imports = ["no_such_module_here".to_owned()];
    let recipe = standby_recipe(&start(&[("PATH", &path)]), &imports, "x/standby".to_owned()).expect("a recipe");
    let mut standby = StandbyProcess::spawn(1, recipe).expect("started");
    let news = wait_ready(
        standby.channel.as_fd(),
        rustix::event::PollFlags::IN,
        Duration::from_secs(30),
    );
    assert!(news.expect("polled"));
    assert_eq!(standby.receive(), None);
    let error = standby.last_error().expect("an error");
    assert!(error.contains("No module named 'no_such_module_here'"), "{error}");
}

/// How a program ended, with its output.
#[derive(Debug, PartialEq, Eq)]
struct ProgramEnd {
    status: String,
    stdout: String,
    stderr: String,
}

fn start_of(words: &[&str], folder: &Path, variables: &[(&str, &str)]) -> RankStart {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    RankStart {
        program: words[0].clone(),
        arguments: words[1..].to_vec(),
        workdir: Some(folder.display().to_string()),
        standby: Some(StandbyCommand::parse(&words).expect("a script")),
        ..start(variables)
    }
}

fn plain_end(words: &[&str], folder: &Path, variables: &[(&str, &str)]) -> ProgramEnd {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder).env_clear();
    let ran = command
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    ProgramEnd {
        status: ran.status.to_string(),
        stdout: String::from_utf8_lossy(&ran.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&ran.stderr).into_owned(),
    }
}

fn standby_end(words: &[&str], folder: &Path, variables: &[(&str, &str)]) -> ProgramEnd {
    let start = start_of(words, folder, variables);
    let standby = waiting(standby_recipe(&start, &[], "x/standby".to_owned()).expect("a recipe"));
    let mut outputs = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
    let descriptors = [0, 1].map(|at| OwnedFd::from(outputs[at].try_clone().expect("a copy")));
    let mut values = standby.values_for(&start, None).expect("it fits");
    // The plain start has none.
    values.remove(FENCE_VARIABLE);
    standby
        .become_rank(&start, values, [&descriptors[0], &descriptors[1]])
        .expect("it answers");
    let pid = i32::try_from(standby.pid).ok().and_then(Pid::from_raw);
    let (_, status) = waitpid(pid, WaitOptions::empty()).expect("waited").expect("it ended");
    let mut texts = outputs.iter_mut().map(|output| {
        let mut text = String::new();
        output.rewind().expect("rewound");
        output.read_to_string(&mut text).expect("text");
        text
    });
    ProgramEnd {
        status: ExitStatus::from_raw(status.as_raw()).to_string(),
        stdout: texts.next().expect("standard output"),
        stderr: texts.next().expect("standard error"),
    }
}

/// Scripts and modules that show how a program starts and ends.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "start.py",
        "import sys, os\nprint(sys.argv, sys.path, sys.flags, getattr(sys, 'orig_argv', 0), sys.executable)\n\
         print(__name__, __file__, __spec__, type(__loader__).__name__, list(globals()), sys.stdin.read())\n\
         print(os.environ['RANK'], os.getenv('RANK'), os.getcwd(), flush=True)\nos.system('echo $RANK; umask')\n",
    ),
    ("raise.py", "def f(x):\n    return 1 / x\nprint('before')\nf(0)\n"),
    (
        "chain.py",
        "try:\n    {}['a']\nexcept KeyError as problem:\n    raise RuntimeError('b') from problem\n",
    ),
    (
        "exit.py",
        "import atexit, sys\natexit.register(lambda: print('end', '__file__' in globals()))\nsys.exit(3)\n",
    ),
    ("words.py", "import sys\nsys.exit('a message')\n"),
    ("syntax.py", "print('a')\nx = = 2\n"),
    ("interrupt.py", "raise KeyboardInterrupt\n"),
    (
        "hook.py",
        "import sys\ndef hook(kind, value, trace):\n    print(kind, trace.tb_frame.f_code.co_name, trace.tb_lineno)\n\
         sys.excepthook = hook\nraise ValueError(1)\n",
    ),
    (
        "spawn.py",
        "import multiprocessing, pickle\nclass A:\n    x = 1\ndef work(queue):\n    queue.put((A(), __name__))\n\
         if __name__ == '__main__':\n    context = multiprocessing.get_context('spawn')\n\
         \x20   queue = context.SimpleQueue()\n    child = context.Process(target=work, args=(queue,))\n\
         \x20   child.start()\n    value, name = queue.get()\n    child.join()\n\
         \x20   print(type(value) is A, name, child.exitcode, pickle.loads(pickle.dumps(A())).x)\n",
    ),
    (
        "thread.py",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')\n",
    ),
    ("signal.py", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"),
    ("exec.py", "import os\nos._exit(7)\n"),
    ("warn.py", "import warnings\nwarnings.warn('w')\n"),
    (
        "task.py",
        "import asyncio\nasync def work():\n    raise OSError('x')\nasyncio.run(work())\n",
    ),
    (
        "source.py",
        "import inspect\nclass C: pass\nprint(inspect.getsource(C), inspect.getfile(C))\n",
    ),
    ("pkg/__init__.py", ""),
    (
        "pkg/__main__.py",
        "import sys\nprint(sys.argv, sys.path[0], __package__, __spec__.name)\nraise ValueError('m')\n",
    ),
    (
        "pkg/part.py",
        "import sys\nfrom . import __name__ as name\nprint(name, sys.argv)\n",
    ),
];

#[test]
fn a_standby_process_behaves_as_a_plain_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().canonicalize().expect("a path");
    std::fs::create_dir(folder.join("pkg")).expect("made");
    for (name, text) in PROGRAMS {
        std::fs::write(folder.join(name), text).expect("written");
    }
    let path = std::env::var("PATH").expect("set");
    let variables = [("PATH", path.as_str()), ("RANK", "5"), ("PYTHONDONTWRITEBYTECODE", "1")];
    let check = |words: &[&str]| {
        let plain = plain_end(words, &folder, &variables);
        assert_eq!(standby_end(words, &folder, &variables), plain, "{words:?}");
    };
    for (name, _) in PROGRAMS.iter().filter(|(name, _)| !name.contains('/')) {
        check(&["python3", name, "a", "--b"]);
    }
    check(&["python3", "-u", "-O", "-X", "dev", "start.py"]);
    check(&["python3", "-I", "start.py"]);
    check(&["python3", "./start.py", "é"]);
    check(&["python3", "missing.py"]);
    check(&["python3", "pkg", "x"]);
    check(&["python3", "-m", "pkg", "a"]);
    check(&["python3", "-um", "pkg.part", "b"]);
    check(&["python3", "-m", "pkg.missing"]);
}

#[test]
fn output_of_imports_precedes_that_of_the_rank() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(
        dir.path().join("noisy.py"),
        "import sys\nprint('o')\nprint('e', file=sys.stderr)\n",
    )
    .expect("written");
    std::fs::write(dir.path().join("x.py"), "import noisy\nprint('x')\n").expect("written");
    let path = std::env::var("PATH").expect("set");
    let variables = [("PATH", path.as_str())];
    let start = start_of(&["python3", "x.py"], dir.path(), &variables);
    let imports = ["noisy".to_owned()];
    let standby = waiting(standby_recipe(&start, &imports, "x/standby".to_owned()).expect("a recipe"));
    let mut outputs = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
    let descriptors = [0, 1].map(|at| OwnedFd::from(outputs[at].try_clone().expect("a copy")));
    let values = standby.values_for(&start, None).expect("it fits");
    standby
        .become_rank(&start, values, [&descriptors[0], &descriptors[1]])
        .expect("it answers");
    standby.wait_ended(Duration::from_secs(30));
    let texts = outputs.each_mut().map(|output| {
        let mut text = String::new();
        output.rewind().expect("rewound");
        output.read_to_string(&mut text).expect("text");
        text
    });
    assert_eq!(texts, ["o\nx\n".to_owned(), "e\n".to_owned()]);
}

#[test]
fn imports_that_hold_a_socket_exclude_the_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "import socket\nheld = socket.socket()\n";
    std::fs::write(dir.path().join("network.py"), text).expect("written");
    std::fs::write(dir.path().join("x.py"), "").expect("written");
    let path = std::env::var("PATH").expect("set");
    let start = start_of(&["python3", "x.py"], dir.path(), &[("PATH", &path)]);
    let imports = ["network".to_owned()];
    let recipe = standby_recipe(&start, &imports, "x/standby".to_owned()).expect("a recipe");
    let mut standby = StandbyProcess::spawn(1, recipe).expect("started");
    let limit = Duration::from_secs(30);
    let is_readable = wait_ready(standby.channel.as_fd(), rustix::event::PollFlags::IN, limit);
    assert!(is_readable.expect("polled"));
    let news = standby.receive();
    let Some(StandbyNews::Failed { problem }) = news else {
        panic!("{news:?}");
    };
    assert!(problem.starts_with("an import opened socket:"), "{problem}");
}
