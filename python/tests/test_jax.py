"""Arrays of JAX, on the CPU."""

import os

import pytest

import rankguard

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

TYPES = ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_comes_back_bit_by_bit_and_replaces_the_array(session, dtype):
    array = jnp.asarray(np.arange(-6, 6).reshape(3, 4) * 0.5).astype(dtype)
    session.checkpoint({"params": {"w": array}, "list": [array[0], 1.5], "scalar": array[1, 1]}, step=2)
    session.wait()
    zero = jnp.zeros_like(array)
    live = {"params": {"w": zero}, "list": [zero[0], 0.0], "scalar": zero[1, 1]}
    session.restore(live)
    for got, want in ((live["params"]["w"], array), (live["list"][0], array[0]), (live["scalar"], array[1, 1])):
        assert isinstance(got, jax.Array) and got.dtype == want.dtype and got.shape == want.shape
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
    assert live["list"][1] == 1.5 and not np.asarray(zero).any()


def test_an_array_over_several_devices_is_saved_whole_and_keeps_its_sharding(session):
    assert len(jax.devices()) > 1
    mesh = jax.make_mesh((len(jax.devices()),), ("x",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    array = jax.device_put(jnp.arange(12.0), spread)
    session.checkpoint({"w": array}, step=1)
    session.wait()
    live = {"w": jax.device_put(jnp.zeros(12), spread)}
    session.restore(live)
    assert live["w"].sharding == spread and live["w"].tolist() == list(range(12))


def test_one_in_a_tuple_can_be_saved_and_not_replaced(session):
    session.checkpoint({"pair": (jnp.ones(3), 1)}, step=1)
    session.wait()
    with pytest.raises(rankguard.Unsavable, match=r"pair.0: an array of JAX in a tuple cannot be replaced"):
        session.restore({"pair": (jnp.zeros(3), 0)})
    loaded = session.load()
    assert loaded.state["pair"][0].tolist() == [1, 1, 1]


def test_a_step_of_training_goes_on_to_the_last_bit(session):
    @jax.jit
    def step(params, key):
        key, part = jax.random.split(key)
        inputs = jax.random.normal(part, (8, 4))
        loss = lambda given: ((inputs @ given["w"] + given["b"]) ** 2).mean()  # noqa: E731
        return jax.tree.map(lambda value, slope: value - 0.1 * slope, params, jax.grad(loss)(params)), key

    state = {"params": {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}, "key": jax.random.PRNGKey(1)}
    for _ in range(3):
        state["params"], state["key"] = step(state["params"], state["key"])
    session.checkpoint(state, step=3)
    session.wait()
    fresh = {"params": {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}, "key": jax.random.PRNGKey(9)}
    session.restore(fresh)
    for one in (state, fresh):
        one["params"], one["key"] = step(one["params"], one["key"])
    same = jax.tree.map(lambda one, two: np.asarray(one).tobytes() == np.asarray(two).tobytes(), state, fresh)
    assert all(jax.tree.leaves(same))
