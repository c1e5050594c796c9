//! What the kernel of a node reports before the errors of ranks that follow from it. Lines have the marks of the matcher.

use crate::world::{World, gpu, line, node, on_node, rank_of};
use rankguard_diagnosis::ConcludedDraft;
use rankguard_faults::SignatureMatcher;
use rankguard_model::{Classification, Device, DeviceKind, Entity, EvidenceSource, ProcessExit, Rank, Role};

const RETRIES: &str = "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.7.0.2<40112> with status=12 opcode=0 len=0 \
                       vendor err 129 (Send) hca mlx5_1";
const UNPLUGGED: &str = "mlx5_core 0000:5e:00.0: Port module event: module 1, Cable unplugged";

fn marks(source: EvidenceSource, text: &str) -> Vec<Classification> {
    SignatureMatcher::builtin().marks(source, text)
}

fn kernel(world: &mut World, ms: i64, entity: Entity, text: &str) {
    let all = marks(EvidenceSource::KernelLog, text);
    assert!(!all.is_empty(), "no mark: {text}");
    world.at(ms, EvidenceSource::KernelLog, entity, line(text), all);
}

fn writes(world: &mut World, ms: i64, rank: u32, text: &str) {
    let all = marks(EvidenceSource::JobLog, text);
    assert!(!all.is_empty(), "no mark: {text}");
    let entity = world.rank(rank);
    world.at(ms, EvidenceSource::JobLog, entity, line(text), all);
}

fn nic(on: u32, address: &str) -> Entity {
    Entity::Device {
        node: node(on),
        device: Device {
            kind: DeviceKind::Nic,
            address: address.to_owned(),
        },
    }
}

fn check(case: &ConcludedDraft, class: &str, blamed: &Entity) {
    assert_eq!(
        (case.verdict.class.as_str(), &case.verdict.blamed),
        (class, blamed),
        "{case:#?}"
    );
}

fn role_of(case: &ConcludedDraft, text: &str) -> Role {
    let finding = case.findings.iter().find(|finding| finding.text.contains(text));
    finding.unwrap().role
}

#[test]
fn an_unplugged_cable_explains_the_failed_retries_rg_7() {
    let mut world = World::new();
    kernel(&mut world, 1_000, nic(2, "0000:5e:00.0"), UNPLUGGED);
    writes(&mut world, 4_000, 0, RETRIES);
    writes(&mut world, 4_100, 2, RETRIES);
    world
        .exits(4_500, 0, ProcessExit::Code(1))
        .exits(4_600, 2, ProcessExit::Code(1));
    let case = world.settle();
    check(&case, "nic-link-down", &nic(2, "0000:5e:00.0"));
    assert_eq!(role_of(&case, "Got completion"), Role::Cascade);
}

#[test]
fn a_port_without_a_cable_explains_no_error_of_a_program_rg_7() {
    let mut world = World::new();
    kernel(&mut world, 1_000, nic(1, "0000:5e:00.0"), UNPLUGGED);
    writes(&mut world, 4_000, 0, "KeyError: 'f1'");
    world.exits(4_500, 0, ProcessExit::Code(1));
    assert_eq!(world.settle().verdict.class.as_str(), "key-error");
}

#[test]
fn a_cable_that_was_unplugged_after_the_error_follows_from_nothing() {
    let mut world = World::new();
    writes(&mut world, 4_000, 0, RETRIES);
    kernel(&mut world, 5_000, nic(1, "0000:5e:00.0"), UNPLUGGED);
    world.exits(5_500, 0, ProcessExit::Code(1));
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "ib-rdma-error");
    assert_eq!(role_of(&case, "Cable unplugged"), Role::Noise);
}

#[test]
fn the_crash_of_a_named_worker_is_the_cause_of_the_exception_that_names_it() {
    let mut world = World::new();
    let crash = "pt_data_worker[5311]: segfault at 7f11 ip 00007f sp 00007f error 4 in libpng.so.8[7f+1]";
    kernel(&mut world, 1_000, on_node(2), crash);
    let report = "RuntimeError: DataLoader worker (pid 5311) is killed by signal: Segmentation fault. ";
    writes(&mut world, 1_500, 3, report);
    world.exits(1_600, 3, ProcessExit::Code(1));
    let case = world.settle();
    check(&case, "segfault", &rank_of(3));
    assert_eq!(role_of(&case, "DataLoader worker"), Role::Confirmation);
}

#[test]
fn a_requested_recovery_names_the_gpu_of_a_cuda_error() {
    for action in ["0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"] {
        let mut world = World::new();
        let text = format!(
            "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) \
             to {action}"
        );
        kernel(&mut world, 1_000, gpu(2), &text);
        writes(&mut world, 1_300, 2, "RuntimeError: CUDA error: unknown error");
        world.exits(1_500, 2, ProcessExit::Code(1));
        let case = world.settle();
        check(&case, "gpu-recovery-action", &gpu(2));
        assert_eq!(role_of(&case, "CUDA error"), Role::Confirmation);
    }
    // The GPU of another node.
    let mut world = World::new();
    let text = "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) \
                to 0x1 (GPU Reset Required)";
    kernel(&mut world, 1_000, gpu(1), text);
    writes(&mut world, 1_300, 2, "RuntimeError: CUDA error: unknown error");
    world.exits(1_500, 2, ProcessExit::Code(1));
    check(&world.settle(), "cuda-launch-failure", &rank_of(2));
}

#[test]
fn a_fatal_error_of_the_bus_and_the_lost_gpu_are_one_failure() {
    let errors = [
        "nvidia 0000:9b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
        "pcieport 0000:9a:01.0: AER: Uncorrected (Fatal) error received: 0000:9a:01.0",
    ];
    for error in errors {
        let mut world = World::new();
        kernel(&mut world, 1_000, on_node(2), error);
        let lost = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4410, name=python3, GPU has fallen off the bus.";
        kernel(&mut world, 1_230, gpu(2), lost);
        world.exits(1_500, 2, ProcessExit::Code(1));
        let case = world.settle();
        check(&case, "pcie-error", &gpu(2));
        assert_eq!(role_of(&case, "fallen off the bus"), Role::Confirmation);
        assert!(case.separate.is_empty(), "{:#?}", case.separate);
    }
}

#[test]
fn a_bond_without_an_interface_follows_from_the_link_of_its_last_one() {
    let mut world = World::new();
    kernel(
        &mut world,
        1_000,
        nic(2, "0000:31:00.0"),
        "mlx5_core 0000:31:00.0 ens1f0np0: Link down",
    );
    let slave = "bond0: (slave ens1f0np0): link status definitely down, disabling slave";
    kernel(&mut world, 1_050, nic(2, "ens1f0np0"), slave);
    let bond = "bond0: now running without any active interface!";
    kernel(&mut world, 1_120, nic(2, "bond0"), bond);
    let reset = "RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [127.0.0.1]:40877: Connection reset by peer";
    writes(&mut world, 3_000, 0, reset);
    writes(&mut world, 3_100, 2, reset);
    world.exits(3_200, 0, ProcessExit::Code(1));
    let case = world.settle();
    check(&case, "nic-link-down", &nic(2, "0000:31:00.0"));
    assert_eq!(role_of(&case, "without any active"), Role::Confirmation);
    assert_eq!(role_of(&case, "definitely down"), Role::Confirmation);
}

#[test]
fn a_reset_after_the_page_fault_of_a_rank_is_no_fault_of_the_gpu() {
    let mut world = World::new();
    let fault = "amdgpu 0000:9b:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32770, for process \
                 python3 pid 1002 thread python3 pid 1002)";
    kernel(&mut world, 1_000, gpu(2), fault);
    kernel(
        &mut world,
        2_000,
        gpu(2),
        "amdgpu 0000:9b:00.0: amdgpu: GPU reset begin!",
    );
    let report = "Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7f12a000. Reason: Page not present or \
                  supervisor privilege.";
    writes(&mut world, 2_100, 2, report);
    world.exits(2_200, 2, ProcessExit::Signal(6));
    let case = world.settle();
    check(&case, "cuda-illegal-memory-access", &rank_of(2));
    assert_eq!(role_of(&case, "GPU reset begin"), Role::Cascade);
    assert!(case.separate.is_empty(), "{:#?}", case.separate);
    // The page fault of another process explains no end of a rank.
    let mut world = World::new();
    kernel(&mut world, 1_000, gpu(2), &fault.replace("1002", "77"));
    kernel(
        &mut world,
        2_000,
        gpu(2),
        "amdgpu 0000:9b:00.0: amdgpu: GPU reset begin!",
    );
    world.exits(2_200, 2, ProcessExit::Signal(6));
    check(&world.settle(), "gpu-internal-fault", &gpu(2));
}

#[test]
fn journals_of_older_rules_keep_their_verdicts() {
    let mut world = World::new();
    world.diagnosis.set_fault_ends(false);
    kernel(&mut world, 1_000, nic(2, "0000:5e:00.0"), UNPLUGGED);
    writes(&mut world, 4_000, 0, RETRIES);
    world.exits(4_500, 0, ProcessExit::Code(1));
    assert_eq!(world.settle().verdict.class.as_str(), "ib-rdma-error");
    let mut world = World::new();
    world.diagnosis.set_fault_ends(false);
    let request = "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) \
                   to 0x1 (GPU Reset Required)";
    kernel(&mut world, 1_000, gpu(2), request);
    writes(&mut world, 1_300, 2, "RuntimeError: CUDA error: unknown error");
    world.exits(1_500, 2, ProcessExit::Code(1));
    assert_eq!(world.settle().verdict.class.as_str(), "cuda-launch-failure");
}

const DIFFERS: &str = "rankguard._replicas.ReplicasDiffer: replicas that must be equal differ at step 27: tensor model.w of rank 2 \
                       differs from the majority of ranks 0 1 2 3";
const NO_MAJORITY: &str = "rankguard._replicas.ReplicasDiffer: replicas that must be equal differ at step 27: tensor model.w has 2 \
                           contents on ranks 0 3, and none has a majority";

#[test]
fn a_comparison_of_replicas_names_the_rank_that_differs() {
    let mut world = World::new();
    writes(&mut world, 1_000, 2, DIFFERS);
    world.exits(1_200, 2, ProcessExit::Code(1));
    writes(
        &mut world,
        1_300,
        0,
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4000",
    );
    world.exits(1_400, 0, ProcessExit::Code(1));
    let case = world.settle();
    check(&case, "silent-data-corruption", &on_node(2));
    assert_eq!(case.verdict.root_rank, Some(Rank(2)), "{case:#?}");
}

#[test]
fn a_comparison_without_a_majority_blames_no_rank_that_reports_it() {
    let mut world = World::new();
    writes(&mut world, 1_000, 0, NO_MAJORITY);
    writes(&mut world, 1_010, 3, NO_MAJORITY);
    world
        .exits(1_200, 0, ProcessExit::Code(1))
        .exits(1_210, 3, ProcessExit::Code(1));
    let case = world.settle();
    check(&case, "silent-data-corruption", &Entity::Unknown);
    assert_eq!(case.verdict.root_rank, None, "{case:#?}");
}
