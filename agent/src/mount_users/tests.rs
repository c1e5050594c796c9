#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;

use rankguard_model::{NodeId, Role};

use super::*;
use crate::collectors::testing::{launch, process, rank};

const MOUNTS: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 7:0 / /scratch rw - ext4 /dev/loop0 rw\n\
                      3 1 0:31 / /home rw - nfs4 nas01:/home rw,addr=10.0.0.7\n";

/// Machine with two ranks and all files on the root file system.
struct Machine {
    folder: tempfile::TempDir,
    roster: RankRoster,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
            roster: RankRoster::new(NodeId::from("a")),
        };
        machine.put("proc/self/mountinfo", MOUNTS);
        machine.link("proc/self/ns/mnt", "mnt:[1]");
        for number in [0, 1] {
            machine.starts(number, |_| {});
            machine.process(70 + number, "");
        }
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(to, path).unwrap();
    }

    fn starts(&self, number: u32, order: impl FnOnce(&mut LaunchOrder)) {
        let mut launch = launch(&rank(number));
        order(&mut launch);
        self.roster.expect(rank(number), 0, Arc::new(launch));
        self.roster.started(&rank(number), process(70 + number));
    }

    fn process(&self, pid: u32, children: &str) {
        let own = format!("proc/{pid}");
        self.stat(pid, 1, 'S');
        self.put(&format!("{own}/comm"), "python3\n");
        self.put(&format!("{own}/task/{pid}/children"), children);
        self.put(
            &format!("{own}/maps"),
            "7f00-7f01 r--p 00000000 08:01 12   /usr/bin/python3\n7f02-7f03 rw-p 0 00:00 0\n",
        );
        self.link(&format!("{own}/ns/mnt"), "mnt:[1]");
        self.link(&format!("{own}/cwd"), "/root");
        self.link(&format!("{own}/exe"), "/usr/bin/python3");
        self.link(&format!("{own}/fd/0"), "/dev/null");
        self.link(&format!("{own}/fd/1"), "socket:[17]");
    }

    fn stat(&self, pid: u32, parent: u32, state: char) {
        self.put(
            &format!("proc/{pid}/stat"),
            &format!("{pid} (python3) {state} {parent} 70\n"),
        );
    }

    /// Returns mount, device and users of a failing file system.
    fn says(&self, failing: FailingStorage) -> [Option<String>; 3] {
        let proc_root = self.folder.path().join("proc");
        let sysfs_root = self.folder.path().join("sys");
        let mut mark = crate::pending_evidence::mark("filesystem-io-error", Role::Root, 0.6, "test");
        MountUsers::new(&proc_root, &sysfs_root, &self.roster).annotate_mark(failing, &mut mark);
        ["mount", "device", "used_by"].map(|name| mark.fields.get(name).map(str::to_owned))
    }

    fn used(&self) -> Option<String> {
        let [.., used] = self.says(FailingStorage::Place("/scratch/x".to_owned()));
        used
    }
}

fn told(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_disk_is_used_by_whoever_works_in_it_has_it_open_or_maps_it() {
    let machine = Machine::new();
    let scratch = FailingStorage::Place("/scratch/x".to_owned());
    assert_eq!(
        machine.says(scratch),
        [told("/scratch"), told("/dev/loop0"), told("none")]
    );
    assert_eq!(
        machine.says(FailingStorage::Place("/".to_owned()))[2],
        told("llm/0, llm/1")
    );
    machine.link("proc/71/fd/9", "/scratch/step-9.pt (deleted)");
    assert_eq!(machine.used(), told("llm/1"));
    machine.link("proc/71/fd/9", "/scratch2/step-9.pt");
    assert_eq!(machine.used(), told("none"));
    machine.put("proc/70/maps", "7f00-7f01 r--p 00000000 07:00 12   /scratch/data.bin\n");
    machine.link("proc/71/cwd", "/scratch");
    assert_eq!(machine.used(), told("llm/0, llm/1"));
}

#[test]
fn a_disk_is_used_by_the_children_of_a_rank_and_where_its_order_names_it() {
    let machine = Machine::new();
    machine.process(70, "90 ");
    machine.process(90, "91 ");
    machine.process(91, "");
    machine.link("proc/91/fd/3", "/scratch/shard-0");
    machine.starts(1, |launch| {
        launch.command = vec!["train".to_owned(), "--out=/scratch/run".to_owned()]
    });
    assert_eq!(machine.used(), told("llm/0, llm/1"));
    // Kernels without lists of children: the parents are read.
    machine.stat(90, 70, 'S');
    machine.stat(91, 90, 'S');
    for pid in [70, 90, 91] {
        fs::remove_file(machine.folder.path().join(format!("proc/{pid}/task/{pid}/children"))).unwrap();
    }
    assert_eq!(machine.used(), told("llm/0, llm/1"));
    machine.link("proc/91/fd/3", "/dev/null");
    machine.starts(1, |launch| launch.checkpoint_store = "/scratch".to_owned());
    assert_eq!(machine.used(), told("llm/1"));
}

#[test]
fn what_may_not_be_looked_at_is_not_known() {
    type Change = fn(&Machine);
    let gone: [(&str, Change); 5] = [
        ("another user's files", |machine| {
            fs::remove_dir_all(machine.folder.path().join("proc/71/fd")).unwrap()
        }),
        ("another user's mappings", |machine| {
            fs::remove_file(machine.folder.path().join("proc/71/maps")).unwrap()
        }),
        ("a child of another user", |machine| {
            machine.put("proc/71/task/71/children", "99 ");
            machine.stat(99, 71, 'S');
        }),
        ("work in containers of others", |machine| {
            machine.put("proc/71/comm", "docker\n")
        }),
        ("a rank that has just ended", |machine| machine.roster.ended(&rank(1))),
    ];
    for (why, change) in gone {
        let machine = Machine::new();
        change(&machine);
        assert_eq!(machine.used(), None, "{why}");
        machine.link("proc/70/cwd", "/scratch");
        assert_eq!(machine.used(), told("llm/0, ?"), "{why}");
    }
    let machine = Machine::new();
    machine.put("proc/71/task/71/children", "98 99 ");
    machine.stat(99, 71, 'Z');
    assert_eq!(
        machine.used(),
        told("none"),
        "a child that has ended or is gone holds nothing"
    );
    let idle = Machine::new();
    let nobody = RankRoster::new(NodeId::from("a"));
    assert_eq!(
        Machine { roster: nobody, ..idle }.used(),
        None,
        "without ranks nothing is said"
    );
}

#[test]
fn a_container_s_layers_lie_on_a_disk_and_one_that_cannot_see_it_does_not_use_it() {
    let machine = Machine::new();
    for number in [70, 71] {
        machine.link(&format!("proc/{number}/ns/mnt"), "mnt:[2]");
    }
    machine.put(
        "proc/70/mountinfo",
        "9 0 0:50 / / rw - overlay overlay rw,lowerdir=/var/a,upperdir=/scratch/up,workdir=/scratch/w\n",
    );
    machine.put(
        "proc/71/mountinfo",
        "9 0 0:51 / / rw - overlay overlay rw,lowerdir=/var/a,upperdir=/var/up\n",
    );
    assert_eq!(machine.used(), told("llm/0"));
    machine.put(
        "proc/71/mountinfo",
        "8 0 0:51 / / rw - overlay o rw\n9 8 7:0 /job /data rw - ext4 /dev/loop0 rw\n",
    );
    machine.link("proc/71/cwd", "/data/x");
    assert_eq!(machine.used(), told("llm/0, llm/1"));
}

#[test]
fn disks_are_known_by_their_parts_and_volumes_and_servers_by_their_mounts() {
    let machine = Machine::new();
    machine.link("proc/71/cwd", "/scratch");
    for (path, text) in [
        ("sdb/dev", "8:16"),
        ("sdb/sdb1/partition", "1"),
        ("sdb1/holders/dm-0/dev", ""),
        ("dm-0/dev", "7:0\n"),
        ("nvme4n1/holders/dm-0/dev", ""),
    ] {
        machine.put(&format!("sys/class/block/{path}"), text);
    }
    for disk in ["sdb", "nvme4", "nvme4n1", "dm-0", "loop0"] {
        let says = machine.says(FailingStorage::Disk(disk.to_owned()));
        assert_eq!(says, [told("/scratch"), told("/dev/loop0"), told("llm/1")], "{disk}");
    }
    assert_eq!(machine.says(FailingStorage::Disk("sdz".to_owned())), [None, None, None]);
    for server in ["nas01", "10.0.0.7"] {
        let says = machine.says(FailingStorage::Server(server.to_owned()));
        assert_eq!(says, [told("/home"), told("nas01:/home"), told("none")], "{server}");
    }
    assert_eq!(
        machine.says(FailingStorage::Server("nas0".to_owned())),
        [None, None, None]
    );
    let uses = MountUsers::new(Path::new("/proc"), &machine.folder.path().join("sys"), &machine.roster);
    assert_eq!(uses.disk_in("XFS (dm-0): log I/O error -5"), told("dm-0"));
    assert_eq!(uses.disk_in("EXT4-fs (sdq): error"), None);
}

#[test]
fn the_files_of_a_real_process_are_seen() {
    let roster = RankRoster::new(NodeId::from("a"));
    roster.expect(rank(0), 0, Arc::new(launch(&rank(0))));
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    roster.started(&rank(0), process(child.id()));
    let uses = MountUsers::new(Path::new("/proc"), Path::new("/sys"), &roster);
    let of = |place: &str| uses.of(FailingStorage::Place(place.to_owned())).by;
    let own = of("/");
    let proc = of("/proc");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((own, proc), (told("llm/0"), told("none")));
}
