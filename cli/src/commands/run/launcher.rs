//! Detection of launchers in the command of a job.
//!
//! `rankguard run` starts each rank itself with the environment of torchrun (RANK, WORLD_SIZE, MASTER_ADDR ...). A
//! launcher in place of the program starts an independent job per rank, and all of these would write one checkpoint.

use crate::error::CliError;

/// Programs that start the ranks of a job themselves, by file name.
const PROGRAMS: &[&str] = &[
    "torchrun",
    "accelerate",
    "deepspeed",
    "composer",
    "horovodrun",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "srun",
];

/// Python modules that are launchers, for `python -m`.
const MODULES: &[&str] = &[
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
];

/// Options with the number of ranks on a node, or of all ranks for launchers of a single node.
const RANK_COUNTS: &[&str] = &[
    "--nproc-per-node",
    "--nproc_per_node",
    "--num-processes",
    "--num_processes",
    "--num-gpus",
    "--num_gpus",
    "--ntasks-per-node",
    "--ppn",
    "-np",
    "-n",
];

/// A launcher in a command, and the command of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LauncherCommand {
    /// The launcher as typed.
    launcher: String,
    /// Ranks per node; `None` if the launcher counts devices itself.
    ranks: Option<u32>,
    /// Program and arguments of a rank; empty if they were not recognised.
    rank_command: Vec<String>,
}

impl LauncherCommand {
    /// Finds the launcher at the start of a command, after `env`, `exec` and variables, also within `sh -c`.
    pub(super) fn find(command: &[String]) -> Option<Self> {
        let words = skip_prefixes(command);
        let (program, arguments) = words.split_first()?;
        let name = file_name(program);
        if matches!(name, "sh" | "bash" | "dash" | "zsh") {
            let script = arguments.iter().skip_while(|word| !is_script_flag(word)).nth(1)?;
            return shell_commands(script).iter().find_map(|words| Self::find(words));
        }
        if name.starts_with("python") {
            return python_module(arguments)
                .filter(|(module, _)| MODULES.contains(module))
                .map(|(module, rest)| Self::of(format!("{program} -m {module}"), rest));
        }
        // Other subcommands such as `accelerate config` start no ranks.
        let starts = name != "accelerate" || arguments.first().is_some_and(|word| word == "launch");
        (PROGRAMS.contains(&name) && starts).then(|| Self::of(program.clone(), arguments))
    }

    fn of(launcher: String, arguments: &[String]) -> Self {
        Self {
            launcher,
            ranks: rank_count(arguments),
            rank_command: rank_command(arguments),
        }
    }

    /// Builds the error, with the command that starts the ranks correctly.
    pub(super) fn refusal(&self, ranks_per_node: u32) -> CliError {
        let ranks = self.ranks.unwrap_or(ranks_per_node);
        let command = if self.rank_command.is_empty() {
            "python SCRIPT ...".to_owned()
        } else {
            self.rank_command.join(" ")
        };
        CliError::usage(
            format!(
                "cannot run the launcher `{}` as a rank: each rank would start a job of its own, and all would write one checkpoint",
                self.launcher
            ),
            format!(
                "`rankguard run` starts the ranks itself: `rankguard run --ranks-per-node {ranks} -- {command}`; --allow-launcher runs \
                 the launcher with one rank per node"
            ),
        )
    }
}

/// Rejects a launcher, unless it is allowed and the only rank of its node.
pub(super) fn check_launcher(command: &[String], ranks_per_node: u32, is_allowed: bool) -> Result<(), CliError> {
    match LauncherCommand::find(command) {
        Some(found) if !is_allowed || ranks_per_node > 1 => Err(found.refusal(ranks_per_node)),
        _ => Ok(()),
    }
}

/// Returns true if the command starts ranks itself.
pub(super) fn is_launcher(command: &[String]) -> bool {
    LauncherCommand::find(command).is_some()
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_variable(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// True for `-c`, alone or among other letters (`-lc`).
fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

/// Returns the command after `env`, `exec`, `nohup`, `time` and variables.
fn skip_prefixes(mut words: &[String]) -> &[String] {
    while let Some((first, rest)) = words.split_first() {
        let is_prefix = matches!(
            file_name(first),
            "env" | "exec" | "nohup" | "time" | "command" | "stdbuf"
        );
        let is_option_of_prefix = first.starts_with('-');
        if !is_prefix && !is_option_of_prefix && !is_variable(first) {
            break;
        }
        words = rest;
    }
    words
}

/// Splits a shell script into commands and words. Quotes are removed, nothing is expanded.
fn shell_commands(script: &str) -> Vec<Vec<String>> {
    let words = |text: &str| -> Vec<String> {
        text.split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']).to_owned())
            .collect()
    };
    script.split([';', '&', '|', '\n']).map(words).collect()
}

/// Returns the module of `python [options] -m MODULE`, and the arguments after it.
fn python_module(arguments: &[String]) -> Option<(&str, &[String])> {
    let at = arguments
        .iter()
        .position(|word| word == "-m" || !word.starts_with('-'))
        .filter(|at| arguments[*at] == "-m")?;
    let module = arguments.get(at + 1)?;
    Some((module, &arguments[at + 2..]))
}

fn rank_count(arguments: &[String]) -> Option<u32> {
    arguments.iter().enumerate().find_map(|(at, word)| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), arguments.get(at + 1).map(String::as_str)),
        };
        RANK_COUNTS
            .contains(&name)
            .then_some(value)?
            .and_then(|value| value.parse().ok())
            .filter(|count| *count > 0)
    })
}

/// Returns the arguments from the interpreter or script on. The options of launchers before it differ too much to parse
/// each.
fn rank_command(arguments: &[String]) -> Vec<String> {
    let is_interpreter = |word: &String| file_name(word).starts_with("python");
    if let Some(at) = arguments.iter().position(is_interpreter) {
        return arguments[at..].to_vec();
    }
    let Some(at) = arguments
        .iter()
        .position(|word| word.ends_with(".py") || word == "-m" || word == "--module")
    else {
        return Vec::new();
    };
    let mut command = vec!["python".to_owned()];
    command.extend(arguments[at..].iter().cloned());
    if command[1] == "--module" {
        command[1] = "-m".to_owned();
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn check(command: &[&str], expect: Option<(&str, Option<u32>, &str)>) {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let found = LauncherCommand::find(&command);
        let found = found
            .as_ref()
            .map(|it| (it.launcher.as_str(), it.ranks, it.rank_command.join(" ")));
        let expect = expect.map(|(launcher, ranks, rank)| (launcher, ranks, rank.to_owned()));
        assert_eq!(found, expect, "{command:?}");
    }

    #[test]
    fn launchers_are_found_wherever_the_command_begins() {
        let x = "python x.py --lr 1";
        let split = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        check(
            &split("torchrun --nproc-per-node=2 x.py --lr 1"),
            Some(("torchrun", Some(2), x)),
        );
        check(
            &split("/v/bin/torchrun --standalone --nproc_per_node 4 x.py --lr 1"),
            Some(("/v/bin/torchrun", Some(4), x)),
        );
        check(
            &split("python3 -u -m torch.distributed.run --nproc-per-node gpu -m train.main"),
            Some(("python3 -m torch.distributed.run", None, "python -m train.main")),
        );
        check(
            &split("accelerate launch --num_processes 2 x.py --lr 1"),
            Some(("accelerate", Some(2), x)),
        );
        check(
            &split("deepspeed --num_gpus=8 x.py --lr 1"),
            Some(("deepspeed", Some(8), x)),
        );
        check(
            &split("mpirun -np 4 --allow-run-as-root python x.py --lr 1"),
            Some(("mpirun", Some(4), x)),
        );
        check(
            &split("env OMP_NUM_THREADS=1 srun --ntasks-per-node=4 ./train"),
            Some(("srun", Some(4), "")),
        );
        check(
            &[
                "bash",
                "-lc",
                "source v/bin/activate && exec torchrun --nproc-per-node 2 x.py --lr 1",
            ],
            Some(("torchrun", Some(2), x)),
        );
    }

    #[test]
    fn programs_that_only_mention_a_launcher_run() {
        for text in [
            "python x.py --launcher torchrun",
            "python -m train.torchrun",
            "./torchrun.sh",
            "accelerate env",
            "bash train.sh",
            "sh -c echo",
            "python x.py -m torch.distributed.run",
        ] {
            assert_eq!(LauncherCommand::find(&words(text)), None, "{text}");
        }
    }

    #[test]
    fn a_launcher_runs_where_it_is_wanted_and_alone_on_its_node() {
        let command = words("torchrun --nproc-per-node=2 x.py");
        assert!(check_launcher(&command, 1, true).is_ok());
        assert!(check_launcher(&command, 2, true).is_err());
        let refusal = check_launcher(&command, 1, false).expect_err("refused").lines();
        assert!(
            refusal.contains("`rankguard run --ranks-per-node 2 -- python x.py`"),
            "{refusal}"
        );
    }
}
