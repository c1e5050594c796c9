//! Log of a healthy training cluster, generated from a seed.

/// Generates lines of step logs of several frameworks, NCCL start-up output, kernel and system messages until `bytes`
/// are reached.
pub(crate) fn log(bytes: usize, seed: u64) -> Vec<u8> {
    let mut die = XorShift64(seed);
    let mut out = String::with_capacity(bytes + 4096);
    let mut step = 0;
    while out.len() < bytes {
        step += 1;
        let rank = die.below(64);
        for _ in 0..4 {
            step_line(&mut out, &mut die, step, rank);
        }
        match die.below(10) {
            0 | 1 => nccl_line(&mut out, &mut die, rank),
            2 => kernel_line(&mut out, &mut die),
            3 => service_line(&mut out, &mut die),
            _ => {}
        }
    }
    out.into_bytes()
}

struct XorShift64(u64);

impl XorShift64 {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn part(&mut self) -> f64 {
        self.below(1_000_000) as f64 / 1_000_000.0
    }
}

fn clock(step: u64) -> String {
    let minute = step / 60 % 60;
    let second = step % 60;
    let ms = step * 37 % 1000;
    format!(
        "2025-03-{:02} {:02}:{minute:02}:{second:02},{ms:03}",
        1 + step / 86_400 % 28,
        step / 3600 % 24
    )
}

fn step_line(out: &mut String, die: &mut XorShift64, step: u64, rank: u64) {
    let loss = 1.5 + die.part();
    let norm = die.part();
    let ms = 3000.0 + 900.0 * die.part();
    let rate = 3e-4 * die.part();
    let at = clock(step);
    *out += &match die.below(9) {
        0 => format!(
            "[default{}]: iteration {step:8}/  500000 | consumed samples: {:12} | elapsed time per iteration (ms): {ms:.1} | throughput per GPU (TFLOP/s/GPU): {:.1} | learning rate: {rate:.6E} | global batch size:  1024 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3} | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
            rank % 8,
            step * 1024,
            380.0 + 40.0 * norm
        ),
        1 => format!(
            "[{at}] [INFO] [timer.py:264:stop] epoch=0/micro_step={}/global_step={step}, RunningAvgSamplesPerSec={:.4}, CurrSamplesPerSec={:.4}, MemAllocated=18.52GB, MaxMemAllocated=61.3GB\n",
            step * 8,
            200.0 + loss,
            201.0 + norm
        ),
        2 => format!(
            "worker-{}: [{at}] [INFO] [logging.py:107:log_dist] [Rank {rank}] step={step}, skipped=0, lr=[{rate:.4e}, {rate:.4e}], mom=[(0.9, 0.95), (0.9, 0.95)]\n",
            rank / 8
        ),
        3 => format!(
            "{{'loss': {loss:.4}, 'grad_norm': {norm:.6}, 'learning_rate': {rate:.4e}, 'epoch': {:.2}}}\n",
            step as f64 / 9000.0
        ),
        4 => format!(
            "[rank{rank}]: Epoch {}: {:3}%|#######   | {}/1000 [05:12<03:54,  1.83it/s, v_num=12, train_loss={loss:.3}, val_loss={:.3}]\r{:3}%|#######   | {}/1000 [05:13<03:53,  1.83it/s]\n",
            step / 1000,
            step % 100,
            step % 1000,
            loss + 0.1,
            step % 100,
            step % 1000 + 1
        ),
        5 => format!(
            "{rank}: {at} | INFO | train_inner | epoch 001: {step:6} / 40960 loss={loss:.3}, ppl={:.1}, wps={:.1}, ups=0.63, wpb=65536, bsz=128, num_updates={step}, lr={rate:.4e}, gnorm={norm:.3}, clip=0, train_wall={}, gb_free=12.3\n",
            loss.exp(),
            41_000.0 + ms,
            step * 4
        ),
        6 => format!(
            "time (ms) | forward-backward: {ms:.2} | forward-compute: {:.2} | backward-compute: {:.2} | batch-generator: 4.13 | layernorm-grads-all-reduce: 0.03 | optimizer: {:.2}\n",
            ms * 0.3,
            ms * 0.6,
            ms * 0.02
        ),
        7 => format!(
            "(RayTrainWorker pid={}, ip=10.0.0.{}) step: {step} | loss: {loss:.4} | ppl: {:.2} | tokens/s: {:.1} | mfu: 41.2%\n",
            4000 + rank,
            rank / 8,
            loss.exp(),
            18_000.0 + ms
        ),
        _ => format!(
            "{at} - INFO - __main__ - step {step} finished in {:.3} s, loss {loss:.5}, {} tokens seen\n",
            ms / 1000.0,
            step * 4_194_304
        ),
    };
}

fn nccl_line(out: &mut String, die: &mut XorShift64, rank: u64) {
    let head = format!(
        "node-{}:{}:{} [{}] NCCL INFO",
        rank / 8,
        1200 + rank,
        1300 + rank,
        rank % 8
    );
    let channel = die.below(16);
    let peer = die.below(64);
    *out += &match die.below(6) {
        0 => format!(
            "{head} Channel {channel:02}/0 : {rank}[{}] -> {peer}[{}] [send] via NET/IB/{}/GDRDMA\n",
            rank % 8,
            peer % 8,
            channel % 8
        ),
        1 => format!(
            "{head} Channel {channel:02}/0 : {rank}[{}] -> {peer}[{}] via P2P/CUMEM/read\n",
            rank % 8,
            peer % 8
        ),
        2 => format!(
            "{head} Trees [0] {peer}/-1/-1->{rank}->{} [1] {peer}/-1/-1->{rank}->{}\n",
            peer / 2,
            peer / 2
        ),
        3 => format!("{head} Connected all rings, use ring PXN 0 GDR 1\n"),
        4 => format!(
            "{head} comm 0x{:x} rank {rank} nranks 64 cudaDev {} nvmlDev {} busId {:x}000 commId 0x{:x} - Init COMPLETE\n",
            die.next() >> 16,
            rank % 8,
            rank % 8,
            16 + rank % 8,
            die.next()
        ),
        _ => format!(
            "{head} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB eth0:10.0.0.{}<0>\n",
            rank / 8
        ),
    };
}

fn kernel_line(out: &mut String, die: &mut XorShift64) {
    let at = format!("[{:6}.{:06}]", die.below(900_000), die.below(1_000_000));
    *out += &match die.below(6) {
        0 => format!(
            "{at} usb 1-{}: New USB device found, idVendor=046b, idProduct=ff01, bcdDevice= 1.00\n",
            die.below(9)
        ),
        1 => format!(
            "{at} mlx5_core 0000:5e:00.{}: E-Switch: Disable: mode(LEGACY), nvfs(0), necvfs(0), active vports(0)\n",
            die.below(2)
        ),
        2 => format!(
            "{at} audit: type=1400 audit(17410{}.123:42): apparmor=\"STATUS\" operation=\"profile_load\" profile=\"unconfined\" name=\"docker-default\" pid={}\n",
            die.below(99_999),
            die.below(99_999)
        ),
        3 => format!(
            "{at} docker0: port {}(veth{:x}) entered forwarding state\n",
            die.below(30),
            die.next() >> 40
        ),
        4 => format!(
            "{at} perf: interrupt took too long ({} > 3130), lowering kernel.perf_event_max_sample_rate to 63750\n",
            3131 + die.below(900)
        ),
        _ => format!(
            "{at} nvidia-nvlink: Nvlink Core is being initialized, major device number {}\n",
            230 + die.below(9)
        ),
    };
}

fn service_line(out: &mut String, die: &mut XorShift64) {
    let at = format!(
        "Mar {:2} {:02}:{:02}:{:02} n12",
        1 + die.below(28),
        die.below(24),
        die.below(60),
        die.below(60)
    );
    *out += &match die.below(5) {
        0 => format!("{at} systemd[1]: Started Session {} of user alice.\n", die.below(9999)),
        1 => format!(
            "{at} sshd[{}]: Accepted publickey for alice from 10.0.0.{} port {} ssh2: ED25519 SHA256:{:x}\n",
            die.below(99_999),
            die.below(255),
            1024 + die.below(60_000),
            die.next()
        ),
        2 => format!(
            "{at} CRON[{}]: (root) CMD (/usr/lib/sysstat/sa1 1 1)\n",
            die.below(99_999)
        ),
        3 => format!(
            "{at} slurmd[812]: launch task StepId={}.0 request from UID:1000 GID:1000 HOST:10.0.0.1 PORT:{}\n",
            die.below(99_999),
            die.below(60_000)
        ),
        _ => format!(
            "10.0.0.{} - - [04/Mar/2025:11:22:33 +0000] \"GET /metrics HTTP/1.1\" 200 {} \"-\" \"Prometheus/2.48.0\"\n",
            die.below(255),
            die.below(90_000)
        ),
    };
}
