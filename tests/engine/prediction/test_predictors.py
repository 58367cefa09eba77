"""Each predictor on routing whose structure is known."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import OptionError
from engine.prediction.predictors import Predictor, Sample, Silent, Wants
from engine.prediction.predictors.blend import Blend
from engine.prediction.predictors.call_sheet import CallSheet
from engine.prediction.predictors.eam import Eam, likely_first
from engine.prediction.predictors.gate import Gate
from engine.prediction.predictors.gate_fitted import GateFitted
from engine.prediction.predictors.plain import NextIndex, Popularity, PreviousToken
from engine.prediction.prompter import PREDICTORS, make_predictor
from engine.prediction.shape import Shape
from tests.engine.prediction.traces import LinearModel, chosen, play

SHAPE = Shape(layers=4, experts=8, top_k=2, hidden=0)


@pytest.fixture(scope="module")
def model() -> LinearModel:
    return LinearModel.random(layers=5, experts=16, top_k=3, hidden=24)


def shape_of(model: LinearModel) -> Shape:
    return Shape(model.layers, model.experts, model.top_k, model.hidden)


def decode(predictor: Predictor, routes: list[list[int]]) -> None:
    """One token; ``routes[layer]`` are the experts chosen."""
    predictor.begin_pass("decode", 1)
    for layer, ids in enumerate(routes):
        predictor.routed(layer, ids)
    predictor.end_pass()


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_predictor_gives_chances_or_no_opinion(name: str, model: LinearModel) -> None:
    predictor = make_predictor(name, shape_of(model))
    assert predictor.name == name
    play(model, predictor, tokens=70)
    predictor.begin_request()
    predictor.begin_pass("prefill", 30)
    for layer in range(model.layers):
        predictor.routed(layer, [1, 4, 5, 9], np.array([30, 20, 30, 10], np.uint32))
        for distance in range(1, 8):
            chances = predictor.predict(layer, distance)
            if chances is not None:
                assert chances.shape == (model.experts,)
                assert chances.dtype == np.float32
                assert (chances >= 0).all()
                assert (chances <= 1).all()
    predictor.end_pass()
    predictor.end_request()


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"no predictor 'oracle'.*none, .*blend"):
        make_predictor("oracle", SHAPE)
    with pytest.raises(OptionError, match="call-sheet needs hidden states"):
        make_predictor("call-sheet", SHAPE)


def test_none_has_no_opinion() -> None:
    predictor = Silent(SHAPE)
    decode(predictor, [[0, 1]] * 4)
    assert predictor.predict(0, 1) is None
    assert predictor.wants is Wants.NOTHING


def test_next_index_goes_by_number() -> None:
    chances = NextIndex(SHAPE).predict(0, 1)
    assert chances is not None
    assert chosen(chances, 8).tolist() == list(range(8))
    assert chances.sum() == pytest.approx(SHAPE.top_k)


def test_popularity_is_the_share_of_tokens() -> None:
    predictor = Popularity(SHAPE)
    assert predictor.predict(-1, 1) is None
    for last in (1, 1, 5):
        decode(predictor, [[0, last]] * 4)
    chances = predictor.predict(0, 1)
    assert chances is not None
    np.testing.assert_allclose(chances[[0, 1, 5, 6]], [1, 2 / 3, 1 / 3, 0])
    predictor.begin_pass("prefill", 9)
    borrowed = predictor.predict(0, 1)
    np.testing.assert_array_equal(borrowed, chances)
    predictor.routed(1, [7], np.array([9], np.uint32))
    predictor.begin_pass("prefill", 9)
    own = predictor.predict(0, 1)
    assert own is not None
    assert own.argmax() == 7


def test_previous_token_repeats_and_forgets_at_a_new_request() -> None:
    predictor = PreviousToken(SHAPE)
    predictor.begin_request()
    decode(predictor, [[0, 1], [2, 3], [4, 5], [6, 7]])
    predictor.begin_pass("decode", 1)
    chances = predictor.predict(-1, 3)
    assert chances is not None
    assert np.flatnonzero(chances).tolist() == [4, 5]
    beyond = predictor.predict(3, 1)  # the next token's first layer
    assert beyond is not None
    assert np.flatnonzero(beyond).tolist() == [0, 1]
    predictor.begin_request()
    assert predictor.predict(-1, 3) is None


def test_eam_recognises_a_kind_of_request_by_its_first_layers() -> None:
    """Two kinds of requests share no map from one layer's numbers to the next but their history."""
    rng = np.random.default_rng(0)
    shape = Shape(6, 32, 4)
    kinds = [np.stack([rng.permutation(32)[:6] for _ in range(6)]) for _ in range(10)]
    predictor = Eam(shape, capacity=40, matches=2)

    def one_request(kind: np.ndarray, tokens: int, score: bool) -> list[float]:
        shares = []
        predictor.begin_request()
        for _ in range(tokens):
            predictor.begin_pass("decode", 1)
            for layer in range(6):
                ids = rng.permutation(kind[layer])[:4]
                if score and layer > 0:
                    chances = predictor.predict(layer - 1, 1)
                    assert chances is not None
                    shares.append(len(np.intersect1d(chosen(chances, 6), ids)) / 4)
                predictor.routed(layer, ids.tolist())
            predictor.end_pass()
        predictor.end_request()
        return shares

    for _ in range(3):
        for kind in kinds:
            one_request(kind, 30, score=False)
    assert len(predictor.collections["decode"]) == 30
    assert len(predictor.collections["prefill"]) == 0
    found = [share for kind in kinds for share in one_request(kind, 1, score=True)]  # no request matrix to lean on
    assert np.mean(found) > 0.95


def test_before_a_layer_has_routed_the_request_stands_in_and_at_first_the_mean() -> None:
    predictor = Eam(SHAPE)
    predictor.begin_request()
    predictor.begin_pass("decode", 1)
    assert predictor.predict(-1, 1) is None, "no history at all"
    for _ in range(3):
        decode(predictor, [[0, 1]] * 4)
    predictor.end_request()
    predictor.begin_request()
    predictor.begin_pass("decode", 1)
    mean = predictor.predict(-1, 1)
    assert mean is not None
    assert np.flatnonzero(mean).tolist() == [0, 1]
    for _ in range(20):
        decode(predictor, [[6, 7]] * 4)
    predictor.begin_pass("decode", 1)
    own = predictor.predict(-1, 1)
    assert own is not None
    assert sorted(chosen(own, 2).tolist()) == [6, 7]


def test_a_finished_request_enters_the_collection_by_phase() -> None:
    predictor = Eam(SHAPE)
    predictor.begin_request()
    predictor.begin_pass("prefill", 3)
    for layer in range(4):
        predictor.routed(layer, [0, 1], np.array([3, 3], np.uint32))
    predictor.end_pass()
    decode(predictor, [[4, 5]] * 4)
    predictor.end_request()
    assert predictor.collections["prefill"].counts[0, 2].tolist() == [3, 3, 0, 0, 0, 0, 0, 0]
    assert predictor.collections["decode"].counts[0, 2].tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    keys = likely_first(SHAPE, predictor.state())
    assert sorted(keys.tolist()) == [layer * 8 + expert for layer in range(4) for expert in (4, 5)]
    assert likely_first(SHAPE, {}).tolist() == []


def test_gate_passes_on_what_the_next_router_said() -> None:
    shape = Shape(4, 8, 2, hidden=3)
    gate = Gate(shape)
    gate.begin_pass("decode", 1)
    gate.look(0, 1, np.arange(8, dtype=np.float32))
    assert gate.predict(0, 2) is None
    gate.look(0, 2, np.array([0, 5, 1, 2, 9, 3, 0, 0], np.float32))
    chances = gate.predict(0, 2)
    assert chances is not None
    assert sorted(chosen(chances, 2).tolist()) == [1, 4]
    assert (chances[[1, 4]] > 0.5).all()
    assert (np.delete(chances, [1, 4]) < 0.5).all()
    gate.begin_pass("decode", 1)
    assert gate.predict(0, 2) is None, "a new token"


def test_chances_learn_how_far_scores_can_be_trusted() -> None:
    """Scores that are right say so ever more firmly; scores that say nothing end at the base rate."""
    rng = np.random.default_rng(0)
    shape = Shape(2, 16, 4, hidden=1)
    firm, lost = Gate(shape), Gate(shape)
    for _ in range(2000):
        scores = rng.standard_normal(16).astype(np.float32)
        for gate, ids in ((firm, chosen(scores, 4)), (lost, rng.permutation(16)[:4])):
            gate.begin_pass("decode", 1)
            gate.look(0, 1, scores)
            assert gate.predict(0, 1) is not None
            gate.routed(1, ids.tolist())
            gate.end_pass()
    for gate in (firm, lost):
        gate.begin_pass("decode", 1)
        gate.look(0, 1, np.linspace(-2, 2, 16, dtype=np.float32))
    sure, unsure = firm.predict(0, 1), lost.predict(0, 1)
    assert sure is not None
    assert unsure is not None
    assert sure[13:].min() > 0.9
    assert sure[:10].max() < 0.1
    np.testing.assert_allclose(unsure, 0.25, atol=0.12)


def test_fitted_look_ahead_finds_the_linear_map(model: LinearModel) -> None:
    predictor = GateFitted(shape_of(model))
    play(model, predictor, tokens=300)
    found = play(model, predictor, tokens=60, seed=2)
    assert set(found) == {1, 2, 3}
    assert min(found.values()) > 0.95


def test_the_last_layer_foresees_the_next_tokens_first_ones() -> None:
    """Each token begins where the last one ended, turned: no token is known yet, and still it can be foreseen."""
    rng = np.random.default_rng(2)
    model = LinearModel.random(layers=5, experts=16, top_k=3, hidden=24)
    predictor, final, inside = GateFitted(shape_of(model)), np.zeros(24, np.float32), model.layers - 1
    right: dict[int, list[float]] = {1: [], 2: [], 3: []}
    predictor.begin_request()
    foreseen: np.ndarray | None = None
    expected: list[np.ndarray] = []
    for token in range(500):
        if token % 50 == 0:  # another conversation: the last token of the one before says nothing about this one
            predictor.begin_request()
            foreseen, final = None, rng.standard_normal(24).astype(np.float32)
        predictor.begin_pass("decode", 1)
        inputs, scores, final = model.token(2 * final, 0.05 * model.vocabulary[rng.integers(50)])
        assert predictor.ahead(-1, 3) is None
        for layer in range(model.layers):
            predictor.router(layer, inputs[layer], scores[layer])
            if token >= 400 and foreseen is not None and layer < 3:
                named, wanted = chosen(foreseen[layer], 3), chosen(scores[layer], 3)
                right[layer + 1].append(len(np.intersect1d(named, wanted)) / 3)
        chances = predictor.ahead(inside, 3)
        foreseen = None if chances is None else chances.copy()
        if token >= 400 and foreseen is not None:
            expected.append(foreseen.sum(axis=1))
        predictor.end_pass()
        while predictor.learn(1.0):
            pass
    assert min(len(shares) for shares in right.values()) == 98
    assert min(np.mean(shares) for shares in right.values()) > 0.9
    np.testing.assert_allclose(np.mean(expected, axis=0), 3, atol=0.3, err_msg="chances keep what they promise")


def test_fitted_look_ahead_finds_permuted_routing() -> None:
    """Layer l+1 picks a fixed permutation of what layer l picked: nothing by number, everything by map."""
    rng = np.random.default_rng(0)
    shape = Shape(3, 20, 4, hidden=20)
    orders = [rng.permutation(20) for _ in range(2)]
    predictor = GateFitted(shape)
    right = []
    for token in range(400):
        scores = [rng.standard_normal(20).astype(np.float32)]
        for order in orders:
            scores.append(scores[-1][order])
        predictor.begin_pass("decode", 1)
        for layer in range(3):
            predictor.router(layer, scores[layer], scores[layer])
            predictor.routed(layer, chosen(scores[layer], 4).tolist())
            for distance in range(1, 3 - layer):
                chances = predictor.predict(layer, distance)
                if token >= 300 and chances is not None:
                    ids = chosen(scores[layer + distance], 4)
                    right.append(len(np.intersect1d(chosen(chances, 4), ids)) / 4)
        predictor.end_pass()
        predictor.learn(1.0)
    assert len(right) == 300
    assert np.mean(right) > 0.95


def test_call_sheet_knows_the_whole_token_before_its_first_layer(model: LinearModel) -> None:
    predictor = CallSheet(shape_of(model))
    play(model, predictor, tokens=400)
    rng = np.random.default_rng(3)
    final = np.zeros(model.hidden, np.float32)
    right = []
    predictor.begin_request()
    for _ in range(40):
        embedding = model.vocabulary[rng.integers(50)].astype(np.float32)
        predictor.begin_pass("decode", 1)
        predictor.token(final, embedding)
        inputs, scores, final = model.token(final, embedding)
        for layer in range(model.layers):
            chances = predictor.predict(-1, layer + 1)
            if chances is not None:
                right.append(len(np.intersect1d(chosen(chances, 3), chosen(scores[layer], 3))) / 3)
        for layer in range(model.layers):
            predictor.router(layer, inputs[layer], scores[layer])
        predictor.end_pass()
    assert len(right) == 39 * model.layers, "all but the first token, which has no last one"
    assert np.mean(right) > 0.95


def test_a_prefill_teaches_both_before_the_first_word(model: LinearModel) -> None:
    rng = np.random.default_rng(4)
    final = np.zeros(model.hidden, np.float32)
    tokens = []
    for _ in range(129):
        embedding = model.vocabulary[rng.integers(50)].astype(np.float32)
        inputs, scores, final = model.token(final, embedding)
        tokens.append((inputs, scores, final, embedding))
    sample = Sample(*(np.stack(part) for part in zip(*tokens, strict=True)))
    for kind in (GateFitted, CallSheet):
        predictor = kind(shape_of(model))
        predictor.study(sample)
        while predictor.learn(1.0):
            pass
        assert predictor.learnt >= 100
        found = play(model, predictor, tokens=30, learn=False)
        assert min(found.values()) > 0.8, kind


def test_wide_models_are_fitted_in_few_directions() -> None:
    """States that live in 12 of 200 dimensions are found there, at a fraction of the size."""
    rng = np.random.default_rng(5)
    small = LinearModel.random(layers=4, experts=16, top_k=3, hidden=12)
    lift = np.linalg.qr(rng.standard_normal((200, 12)))[0].astype(np.float32)
    shape = Shape(4, 16, 3, hidden=200)
    fitted, sheet = GateFitted(shape, rank=16), CallSheet(shape, rank=40)
    full = GateFitted(shape)

    class Lifted:
        def __init__(self, inner: Predictor) -> None:
            self.inner = inner

        def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
            self.inner.token(lift @ hidden, lift @ embedding)

        def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
            self.inner.router(layer, lift @ inputs, scores)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    for predictor in (fitted, sheet):
        play(small, Lifted(predictor), tokens=400)  # type: ignore[arg-type]
        found = play(small, Lifted(predictor), tokens=40, seed=6)  # type: ignore[arg-type]
        assert min(found.values()) > 0.95, predictor.name
    assert fitted.maps[0].inputs == 16
    assert full.maps[0].inputs == 200


@pytest.mark.parametrize("shape", [Shape(26, 64, 6, 2048), Shape(48, 128, 8, 2048), Shape(58, 256, 8, 7168)])
def test_what_a_learnt_predictor_keeps_is_bounded(shape: Shape) -> None:
    fitted, sheet = GateFitted(shape), CallSheet(shape)
    kept = [sum(table.nbytes for table in ridge.state("x").values()) for ridge in fitted.maps[:1]]
    assert kept[0] * len(fitted.maps) < 128 << 20
    assert sum(table.nbytes for table in sheet.map.state("x").values()) < 128 << 20
    for predictor in (fitted, sheet):
        assert predictor.waiting_bytes < 80 << 20


def test_rows_that_nobody_has_time_for_are_dropped_not_kept(model: LinearModel) -> None:
    predictor = GateFitted(shape_of(model))
    play(model, predictor, tokens=300, learn=False)
    assert predictor.learnt == 0
    assert predictor.dropped == 299 - 128, "the last token waits for the next one"
    while predictor.learn(1.0):
        pass
    assert predictor.learnt == 128
    play(model, predictor, tokens=10)
    assert predictor.learnt == 128 + 9, "a short answer teaches too"


@pytest.mark.parametrize("kind", [GateFitted, CallSheet])
def test_numbers_that_are_not_finite_do_not_spoil_what_is_known(
    model: LinearModel, kind: type[GateFitted] | type[CallSheet]
) -> None:
    predictor = kind(shape_of(model))
    play(model, predictor, tokens=256)
    bad = np.full(model.hidden, np.inf, np.float32)
    for scores in (np.full(model.experts, -np.inf, np.float32), np.full(model.experts, np.nan, np.float32)):
        predictor.begin_pass("decode", 1)
        predictor.token(bad, bad)
        for layer in range(model.layers):
            scores[layer] = 1.0
            predictor.router(layer, bad, scores)
        predictor.end_pass()
    found = play(model, predictor, tokens=200, seed=3)
    assert min(found.values()) > 0.95


def test_experts_ruled_out_by_the_router_come_last() -> None:
    gate = Gate(Shape(2, 6, 2, hidden=3))
    gate.begin_pass("decode", 1)
    gate.look(0, 1, np.array([-np.inf, 1, 4, -np.inf, 3, 2], np.float32))
    chances = gate.predict(0, 1)
    assert chances is not None
    assert sorted(chosen(chances, 2).tolist()) == [2, 4]
    assert chances[[0, 3]].max() < chances[[1, 2, 4, 5]].min()


def test_layers_with_fewer_experts_are_padded() -> None:
    shape = Shape(3, 8, 2, hidden=4)
    predictor = GateFitted(shape)
    rng = np.random.default_rng(0)
    for _ in range(200):
        predictor.begin_pass("decode", 1)
        for layer, experts in enumerate((8, 5, 8)):
            x = rng.standard_normal(4).astype(np.float32)
            predictor.router(layer, x, rng.standard_normal(experts).astype(np.float32))
        predictor.end_pass()
        predictor.learn(1.0)
    predictor.begin_pass("decode", 1)
    predictor.router(0, np.ones(4, np.float32), np.ones(8, np.float32))
    chances = predictor.predict(0, 1)
    assert chances is not None
    assert chances[:5].min() > chances[5:].max()


def test_the_blend_listens_to_whoever_is_right(model: LinearModel) -> None:
    shape = shape_of(model)
    blend = Blend(shape, [NextIndex(shape), Popularity(shape), GateFitted(shape)])
    play(model, blend, tokens=400)
    found = play(model, blend, tokens=60, seed=2, first=0)
    assert min(found.values()) > 0.95
    for place in range(3):
        assert blend.weights[place].sum() == pytest.approx(1.0)
        assert (blend.weights[place] > 0).all()
    assert blend.weights[0].argmax() == 2
    assert blend.weights[0, 2] > 0.7
    assert blend.weights[0, 0] < 0.1


@pytest.mark.parametrize("better", ["popularity", "previous-token"])
def test_the_blend_keeps_up_with_the_best_of_its_parts(better: str) -> None:
    rng = np.random.default_rng(0)
    shape = Shape(2, 64, 8)
    blend, parts = Blend(shape, [Popularity(shape), PreviousToken(shape)]), (Popularity(shape), PreviousToken(shape))
    shares: dict[str, list[float]] = {"blend": [], "popularity": [], "previous-token": []}
    liked = np.exp(-np.arange(64) / 8)
    ids = rng.permutation(64)[:8]
    for token in range(800):
        if better == "popularity":
            ids = rng.choice(64, 8, replace=False, p=liked / liked.sum())
        elif rng.random() < 0.2:
            ids = rng.permutation(64)[:8]
        for predictor in (blend, *parts):
            predictor.begin_pass("decode", 1)
            predictor.routed(0, ids.tolist())
            chances = predictor.predict(0, 1)
            if token > 200 and chances is not None:
                shares[predictor.name].append(len(np.intersect1d(chosen(chances, 8), ids)) / 8)
            predictor.routed(1, ids.tolist())
            predictor.end_pass()
    means = {name: float(np.mean(share)) for name, share in shares.items()}
    assert means[better] == max(means["popularity"], means["previous-token"])
    assert means["blend"] > means[better] - 0.02


def test_the_blend_stops_asking_for_what_it_does_not_use(model: LinearModel) -> None:
    blend = make_predictor("blend", shape_of(model))
    assert blend.wants == Wants.ROUTER | Wants.LOOK | Wants.TOKEN
    assert isinstance(blend, Blend)
    weights = {f"blend/{member.name}": np.full(3, 0.19) for member in blend.members} | {"blend/gate": np.full(3, 0.01)}
    blend.restore(weights)
    assert blend.wants == Wants.ROUTER | Wants.TOKEN


@pytest.mark.parametrize("name", PREDICTORS)
def test_what_was_learnt_survives_a_restart(name: str, model: LinearModel) -> None:
    shape = shape_of(model)
    before = make_predictor(name, shape)
    play(model, before, tokens=200)
    after = make_predictor(name, shape, state=before.state())
    before.learn(10)
    after.learn(10)
    first, second = (play(model, predictor, tokens=20, seed=8, learn=False) for predictor in (before, after))
    assert second == pytest.approx(first, abs=0.05)


def test_saved_numbers_of_another_shape_are_forgotten_one_predictor_at_a_time(model: LinearModel) -> None:
    shape = shape_of(model)
    before = make_predictor("blend", shape)
    play(model, before, tokens=100)
    state = before.state()
    state["gate-fitted/curve"] = np.zeros((9, 9))
    state["popularity/decode"] = np.full((model.layers, model.experts), np.nan)
    after = make_predictor("blend", shape, state=state)
    assert isinstance(after, Blend)
    members = {member.name: member for member in after.members}
    assert isinstance(members["eam"], Eam)
    assert len(members["eam"].collections["decode"]) == 1
    assert isinstance(members["gate-fitted"], GateFitted)
    assert members["gate-fitted"].learnt == 0
    assert isinstance(members["call-sheet"], CallSheet)
    assert members["call-sheet"].learnt > 0
