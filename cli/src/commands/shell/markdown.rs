//! Command reference of the documents: `docs/cli.md`, generated from the command definitions.

use clap::Command;
use rankguard_console::command_table::{CommandGroup, command_tables};

/// Commands that the history program defines and documents.
const HISTORY_COMMANDS: [&str; 4] = ["dataset", "study", "replay", "simulate"];

/// Text before the tables.
const HEAD: &str = "\
# Commands

This file is generated from the program's command definitions by `rankguard shell markdown`. Do not edit it. \
`RANKGUARD_BLESS=1 cargo test -p rankguard -p rankguard-history reference` writes it again.

`rankguard COMMAND --help` lists the options of a command. Listings have `--format table|json|jsonl|csv`. Data goes to \
standard output, everything else to standard error. Settings come from a TOML file (`--config`), then the environment, \
then flags; `rankguard config show` lists them all.

| exit code | meaning |
|---|---|
| 0 | done, nothing wrong found; listings (`status`, `cases`, `node show`) also with open cases |
| 1 | a check found something wrong: a failure in logs (`diagnose`; `classify` prints verdicts and ends with 0), damage, a mistake in a file |
| 2 | it could not be done |
| 3 | the job failed |
| 4 | the job was cancelled |
| 64 | usage or configuration |
| 69 | no controller answers |
";

/// One example of every command, grouped by purpose.
const GROUPS: &[CommandGroup] = &[
    CommandGroup {
        title: "Run jobs",
        examples: &[
            "rankguard run --nodes 2:4 --ranks-per-node 8 --checkpoint-dir /shared/ck --checkpoint-every 100 -- python train.py",
            "rankguard status",
            "rankguard logs train --rank 3 --follow",
            "rankguard cancel train",
        ],
    },
    CommandGroup {
        title: "Operate a cluster",
        examples: &[
            "rankguard controller --state-dir /var/lib/rankguard",
            "rankguard agent --state-dir /var/lib/rankguard-agent --slots 8",
            "rankguard agent status",
            "rankguard agent enrol --controller ctl.example:7700 --token-file token --ca-sha256 0d9e3c41aa6f13f6cf1b9a1e04f8c0b7d2a5e6934c7f8810b2d3e4f5a6978812 --directory /etc/rankguard",
            "rankguard node show gpu-07",
            "rankguard node cordon gpu-07 --reason ticket-4711",
            "rankguard node drain gpu-07 --timeout 600",
            "rankguard node uncordon gpu-07",
            "rankguard node forget gpu-07",
            "rankguard identity init /root/prod-ca --cluster prod",
            "rankguard identity issue --ca /root/prod-ca --role agent --name gpu-07 --out gpu-07",
            "rankguard identity issue-intermediate --ca /root/prod-ca --out issuer",
            "rankguard identity revoke --ca /root/prod-ca --role agent --name gpu-07",
            "rankguard identity show /etc/rankguard/certificate.pem",
            "rankguard token create ci --role operator --job-prefix vision- --expires 30d",
            "rankguard token list",
            "rankguard token revoke ci",
            "rankguard join-token create --nodes gpu-[01-32] --expires 2h",
            "rankguard join-token list",
            "rankguard join-token revoke jt-0123456789ab",
            "rankguard audit --since 7d --action node",
            "rankguard notify test chat",
            "rankguard config check",
            "rankguard config show",
            "rankguard shell completions bash",
            "rankguard shell man --out /usr/share/man/man1",
            "rankguard shell markdown",
        ],
    },
    CommandGroup {
        title: "Work beside Slurm",
        examples: &[
            "rankguard slurm sync --max-drained 10%",
            "rankguard slurm prolog",
            "rankguard slurm exclude",
        ],
    },
    CommandGroup {
        title: "Work beside Kubernetes",
        examples: &[
            "rankguard kubernetes sync --max-unavailable 10%",
            "rankguard kubernetes pods gpu-07 --kubernetes http://127.0.0.1:8001",
        ],
    },
    CommandGroup {
        title: "Find out what failed",
        examples: &[
            "rankguard cases --open",
            "rankguard cases list --node gpu-07 --since 7d",
            "rankguard cases summary --by week --no-drills",
            "rankguard efficiency train --format markdown",
            "rankguard cases show 12",
            "rankguard cases ack 12 'ada looks at it'",
            "rankguard cases comment 12 'rebooted, burn-in runs'",
            "rankguard cases close 13 'rank 7 only writes logs'",
            "rankguard cases correct 12 gpu-thermal 'fan was broken'",
            "rankguard report --out report",
            "rankguard diagnose /var/log/broken-job",
            "rankguard classify cases.jsonl",
            "rankguard explain XID 79",
            "rankguard taxonomy ls",
            "rankguard taxonomy show hu-nsdi2024",
            "rankguard taxonomy crosswalk --class cuda-oom",
        ],
    },
    CommandGroup {
        title: "Checkpoints",
        examples: &[
            "rankguard checkpoint ls --dir /shared/ck",
            "rankguard checkpoint show 1200 --dir /shared/ck",
            "rankguard checkpoint diff 1100 1200 --dir /shared/ck",
            "rankguard checkpoint explain 1200 --dir /shared/ck",
            "rankguard checkpoint verify --dir /shared/ck",
            "rankguard checkpoint scrub --dir /shared/ck --rate 64",
            "rankguard checkpoint repair --dir /shared/ck --from s3://bucket/run-7",
            "rankguard checkpoint parity --dir /shared/ck --group-size 8 --parity 2",
            "rankguard checkpoint push --dir /shared/ck --to s3://bucket/run-7",
            "rankguard checkpoint pull --from s3://bucket/run-7 --dir /shared/ck",
            "rankguard checkpoint export 1200 --dir /shared/ck --out model.safetensors",
            "rankguard checkpoint import model.safetensors --dir /shared/ck --job train --step 0 --ranks 8",
            "rankguard checkpoint gc --dir /shared/ck --keep 3 --keep-every 1000 --dry-run",
            "rankguard checkpoint plan --nodes 64 --state-gib 960 --tier arena:0.2:0.2:process --tier disk:0.4:90:all",
        ],
    },
    CommandGroup {
        title: "Drills and checks",
        examples: &[
            "rankguard demo",
            "rankguard preflight --gpus 8 --write-path /shared/ck",
            "rankguard inject kernel-line 'NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.'",
            "rankguard inject log-line --rank 3 'RuntimeError: CUDA error: unspecified launch failure'",
            "rankguard inject nvml 'xid 3 79' --for 60s",
            "rankguard inject nic mlx5_0 nic.port_state 1 --for 30s",
            "rankguard inject rank-kill 3",
            "rankguard inject rank-hang 3 --for 60s",
            "rankguard inject rank-slow 3 --stopped 0.3 --for 60s",
            "rankguard inject disk-full /var/lib/rankguard-agent --bytes 1000000000 --for 30s",
            "rankguard checkpoint torture --cases 100",
            "rankguard bench match",
            "rankguard bench checkpoint --gib 2",
            "rankguard bench agent --seconds 30",
            "rankguard bench replay --events 1000000",
        ],
    },
];

/// Further uses of some commands, after the tables.
const MORE: &str = "
## More examples

```sh
rankguard run --nodes 1:4 --checkpoint-dir /shared/ck --checkpoint-every 100 --checkpoint-copies 1 -- python train.py  # copies in memory of other nodes
rankguard run --nodes 4 --checkpoint-dir /shared/ck --checkpoint-every 100 --checkpoint-parity 2+1 -- python train.py  # parity on other nodes
rankguard run --checkpoint-dir /shared/ck --checkpoint-every 100 --checkpoint-mirror s3://bucket/run-7 -- python train.py
rankguard run --checkpoint-dir /shared/ck --checkpoint-every 100 --checkpoint-window 64 -- python train.py  # 64 MiB per rank instead of a whole image
rankguard run --name train --checkpoint-dir /shared/ck --checkpoint-every 100 --resume-from train -- python train.py  # next attempt of the run
rankguard checkpoint explain 100 --dir /shared/ck --controller ctl.example:7700  # also the nodes that may be lost
rankguard checkpoint verify --dir s3://bucket/run-7
rankguard checkpoint repair --dir /shared/ck  # rebuilds lost and damaged parts from the parity in the store
rankguard diagnose --healthy good-run broken-run  # differences from a healthy run are evidence
rankguard diagnose --flight-recorder /tmp/nccl_trace  # ranks that the others wait for, from PyTorch's dumps
rankguard diagnose --timings trace.parquet  # cause and cost of stragglers
rankguard preflight --between node-1,node-2,node-3  # slow node or link
rankguard cases list --local --state-dir /var/lib/rankguard-agent  # findings of this node, without a controller
rankguard explain 'NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.'
rankguard study run mtbf --data /data/failures --population 512
```

";

/// Returns the part of the reference with the commands of this program.
pub(super) fn reference(program: &Command) -> Result<String, String> {
    let tables = command_tables(program, GROUPS, &HISTORY_COMMANDS)?;
    Ok(format!("{HEAD}{tables}{MORE}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory as _;
    use rankguard_console::command_table::{CommandReference, example_words};

    use super::*;
    use crate::program::Cli;

    #[test]
    fn examples_of_the_reference_parse() {
        for example in GROUPS.iter().flat_map(|group| group.examples) {
            let parsed = Cli::command().try_get_matches_from(example_words(example));
            assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
        }
    }

    #[test]
    fn reference_equals_the_commands() {
        let main = reference(&Cli::command()).expect("every command has one example");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        let present = fs::read_to_string(path).unwrap_or_default();
        let wanted = CommandReference {
            main,
            ..CommandReference::parse(&present)
        };
        if std::env::var_os("RANKGUARD_BLESS").is_some() {
            fs::write(path, wanted.render()).expect("the file can be written");
            return;
        }
        assert_eq!(
            present,
            wanted.render(),
            "docs/cli.md differs; RANKGUARD_BLESS=1 cargo test -p rankguard reference writes it"
        );
    }
}
