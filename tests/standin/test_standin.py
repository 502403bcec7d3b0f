#!/usr/bin/python3
"""The stand-in server from outside: what a guard relies on, and that every fault does what its row says."""
import gzip
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import contract  # noqa: E402
import standin  # noqa: E402
import test_numbers  # noqa: E402
from standin import StandIn, descendants, integers, member, wait_for  # noqa: E402

DATA = Path(__file__).resolve().parent.parent / "data/standin"
GRAPH_FILES = 13
PASS_FILES = 123


def names(file):
    return [tuple(line.split()) for line in (DATA / file).read_text().splitlines()]


def names_of(files):
    return [(file.name,) if file.layer is None else (file.name, str(file.layer)) for file in files]


def faults_in_table():
    text = subprocess.run([standin.PROGRAM, "--help-faults"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return {re.split("[:=]", line)[0] for line in text.splitlines()}


class Files(unittest.TestCase):
    def check_names(self, version, list_file, passes):
        with StandIn(version=version) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.counters(), [(0, 0)])
            server.dump()
            wanted = names(list_file)
            self.assertEqual(server.counters(), [(passes * len(wanted), passes)])
            for step in range(passes):
                found = [file for file in server.files() if file.step == step]
                self.assertEqual(names_of(found), wanted)
                self.assertEqual([file.index for file in found],
                                 list(range(step * len(wanted) + 1, (step + 1) * len(wanted) + 1)))

    def test_a_pass_writes_the_names_of_0_5_23(self):
        self.check_names(None, "llama-3-layers-0.5.23.txt", 3)

    def test_a_pass_writes_the_names_of_0_5_20_and_one_pass_more(self):
        self.check_names("0.5.20", "llama-3-layers-0.5.20.txt", 4)

    def test_decode_rows_are_those_of_the_prefill(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            answer = server.dump(tokens=4)[1]
            whole = list(range(20, 32)) + answer["output_ids"]
            self.assertEqual(server.request("POST", "/flush_cache")[0], 200)
            server.configure(enable=True, exp_name="pre")
            score = server.generate(rid="score", tokens=0, ids=whole, return_logprob=True, logprob_start_len=0)[1]
            prefill = {(file.name, file.layer): file.path for file in server.files("pre")}
            self.assertEqual(score["output_ids"], [])
            for file in server.files():
                if file.step == 0 or "layers" not in file.name and "embed" not in file.name:
                    continue
                row, all_rows = member(file.path, "data/0"), member(prefill[file.name, file.layer], "data/0")
                at = (11 + file.step) * len(row)
                self.assertEqual(row, all_rows[at:at + len(row)], file.path.name)

    def test_embedding_depends_on_the_token_alone(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            server.dump(ids=[7, 8, 7, 9, 7], tokens=1)
            path = next(file.path for file in server.files() if file.name.endswith("embed_tokens.output"))
            raw = member(path, "data/0")
            rows = [raw[i * len(raw) // 5:(i + 1) * len(raw) // 5] for i in range(5)]
            self.assertEqual(rows[0], rows[2])
            self.assertEqual(rows[0], rows[4])
            self.assertEqual(len({rows[0], rows[1], rows[3]}), 3)

    def test_radix_cache_shortens_the_prefill(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            server.generate(rid="first")
            answer = server.dump(rid="second")[1]
            self.assertEqual(answer["meta_info"]["cached_tokens"], 11)
            first = {file.name: file.path for file in server.files() if file.step == 0 and file.layer is None}
            self.assertEqual(integers(first["input_ids"]), [31])
            self.assertEqual(integers(first["positions"]), [11])
            self.assertEqual(integers(first["seq_lens"]), [12])

    def test_two_ranks_write_each_their_files(self):
        with StandIn(arguments=("--disable-cuda-graph", "--tp-size=2")) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.configure(enable=True, exp_name="exp"), (200, [{}, {}]))
            server.generate()
            self.assertEqual(server.counters(), [(3 * PASS_FILES, 3)] * 2)
            self.assertEqual(server.passes(), {(rank, step): PASS_FILES for rank in (0, 1) for step in range(3)})
            titles = {process.title for process in descendants(server.child.pid)}
            self.assertLessEqual({"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"}, titles)

    def test_two_stages_have_each_their_layers(self):
        """Names and numbers of files as the real 0.5.23 wrote them with --pp-size 2."""
        with StandIn(arguments=("--disable-cuda-graph", "--pp-size", "2")) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.configure(enable=True, exp_name="exp"), (200, [{}, {}]))
            server.generate()
            self.assertEqual(server.counters(), [(3 * 48, 3), (3 * 94, 3)])
            for rank in (0, 1):
                found = names_of([file for file in server.files() if (file.rank, file.step) == (rank, 0)])
                self.assertEqual(found, names(f"llama-3-layers-0.5.23-stage-{rank}.txt"))
            info = server.request("GET", "/server_info")[1]
            self.assertEqual([info[key] for key in ("pp_size", "tp_size", "disable_overlap_schedule")], [2, 1, True])
            self.assertEqual([state["world_size"] for state in info["internal_states"]], [2])
            titles = {process.title for process in descendants(server.child.pid)}
            self.assertLessEqual({"sglang::scheduler_PP0", "sglang::scheduler_PP1"}, titles)

    def test_stages_and_ranks(self):
        with StandIn(arguments=("--disable-cuda-graph", "--pp-size=2", "--tp-size=2")) as server:
            self.assertTrue(server.ready(), server.log())
            server.dump()
            self.assertEqual(server.counters(), [(3 * 48, 3)] * 2 + [(3 * 94, 3)] * 2)
            titles = {process.title for process in descendants(server.child.pid)}
            self.assertLessEqual({"sglang::scheduler_PP0_TP1", "sglang::scheduler_PP1_TP0"}, titles)

    def test_two_stages_without_a_name_never_get_through_their_first_pass(self):
        with StandIn(arguments=("--disable-cuda-graph", "--pp-size=2")) as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name=None)
            for path in ("/generate", "/dumper/get_state"):
                with self.assertRaises(OSError):
                    server.request("POST", path, {"input_ids": [5], "rid": "own"}, timeout=0.5)
            self.assertEqual(server.status("/ping"), 200)
            self.assertIn("has not completed after", server.log())

    def test_replicas_overwrite_each_other(self):
        with StandIn(arguments=("--disable-cuda-graph", "--dp-size=2")) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.log().count("POST /generate"), 2)  # a warm-up for each
            self.assertEqual(server.configure(enable=True, exp_name="exp"), (200, [{}, {}]))
            self.assertEqual(server.configure(x=1), (400, {"error": ["RPC error on rank-0: DumperConfig.__init__() got an "
                                                                     "unexpected keyword argument 'x'"] * 2}))
            server.generate(tokens=2)
            self.assertEqual(sorted(server.counters()), [(0, 0), (2 * PASS_FILES, 2)])
            server.generate(tokens=2)
            self.assertEqual(server.counters(), [(2 * PASS_FILES, 2)] * 2)
            self.assertEqual(len(server.files()), 2 * PASS_FILES)  # not twice as many
            self.assertEqual(len(server.request("GET", "/server_info")[1]["internal_states"]), 2)
            tree = {process.title: process for process in descendants(server.child.pid)}
            for number in (0, 1):
                one = tree[f"sglang::scheduler_DP{number}"]
                self.assertEqual(one.parent, tree["sglang::data_parallel_controller"].pid)

    def test_a_killed_replica_is_not_noticed(self):
        with StandIn(arguments=("--disable-cuda-graph", "--dp-size=2")) as server:
            self.assertTrue(server.ready(), server.log())
            one = next(one for one in descendants() if one.title == "sglang::scheduler_DP1")
            os.kill(one.pid, signal.SIGKILL)
            self.assertTrue(wait_for(lambda: standin.look_at(one.pid) is None))
            time.sleep(0.3)  # nothing happens: there is no event to wait for
            self.assertIsNone(server.child.poll())
            self.assertEqual(server.status("/ping"), 200)

    def test_idle_ranks_of_divided_attention_run_empty_passes(self):
        with StandIn(arguments=("--disable-cuda-graph", "--dp-size=2", "--tp-size=2", "--enable-dp-attention")) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.configure(enable=True, exp_name="exp"), (200, [{}, {}]))
            server.generate(tokens=2)
            self.assertEqual([step for _index, step in server.counters()], [2, 2])
            rows = {file.rank: len(integers(file.path)) for file in server.files() if (file.name, file.step) == ("input_ids", 0)}
            self.assertEqual(sorted(rows.values()), [0, 12])
            self.assertEqual(len(server.request("GET", "/server_info")[1]["internal_states"]), 2)

    def test_halves_of_a_disaggregated_pair(self):
        plain = {"input_ids": [5, 6, 7], "rid": "own", "sampling_params": {"max_new_tokens": 3, "ignore_eos": True}}
        for role, passes in (("prefill", [3]), ("decode", [1, 1])):
            with self.subTest(role=role), StandIn(arguments=("--disable-cuda-graph", "--disaggregation-mode", role)) as server:
                self.assertTrue(server.ready(), server.log())
                status, answer = server.request("POST", "/generate", plain)
                self.assertEqual(status, 400)
                self.assertIn("without bootstrap room id", answer["error"]["message"])
                server.configure(enable=True, exp_name="exp")
                body = {**plain, "bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
                self.assertEqual(server.request("POST", "/generate", body)[0], 200)
                rows = [len(integers(file.path)) for file in server.files() if file.name == "input_ids"]
                self.assertEqual(rows, passes)
                self.assertEqual(server.request("GET", "/server_info")[1]["disaggregation_mode"], role)

    def test_a_draft_model_shares_the_counters(self):
        with StandIn(arguments=("--disable-cuda-graph", "--speculative-algorithm", "EAGLE")) as server:
            self.assertTrue(server.ready(), server.log())
            server.dump(tokens=3)
            layers = [len({file.layer for file in server.files() if file.step == step}) - 1 for step in range(5)]
            self.assertEqual(layers, [3, 1, 3, 1, 3])

    def test_overlapping_batches_leave_the_root_alone(self):
        with StandIn(arguments=("--disable-cuda-graph", "--enable-two-batch-overlap")) as server:
            self.assertTrue(server.ready(), server.log())
            server.dump(tokens=2)
            self.assertEqual([file.name for file in server.files() if ".layers." in file.name], [])
            self.assertGreater(server.counters()[0][0], 20)

    def test_default_flags_replay_graphs(self):
        with StandIn(arguments=()) as server:
            self.assertTrue(server.ready(), server.log())
            server.dump()
            self.assertEqual(server.counters(), [(GRAPH_FILES, 3)])
            found = {file.name: file.path for file in server.files()}
            self.assertEqual(len(found), GRAPH_FILES)
            self.assertNotIn("rids", found)
            server.configure(enable=True, exp_name="padded")
            server.generate(rid="two", ids=range(100, 113), tokens=1)
            padded = next(file.path for file in server.files("padded") if file.name == "input_ids")
            self.assertEqual(integers(padded), [*range(100, 113), 0, 0, 0])
            config = server.request("GET", "/server_info")[1]["cuda_graph_config"]
            self.assertEqual((config["decode"]["backend"], config["prefill"]["backend"]), ("full", "breakable"))

    def test_one_flag_for_both_graphs_or_one_for_each(self):
        for arguments, counters in ((("--disable-cuda-graph",), (3 * PASS_FILES, 3)),
                                    (("--disable-decode-cuda-graph",), (GRAPH_FILES + 2 * PASS_FILES, 3)),
                                    (("--cuda-graph-backend-prefill=disabled",), (PASS_FILES, 3))):
            with self.subTest(arguments=arguments), StandIn(arguments=arguments) as server:
                self.assertTrue(server.ready(), server.log())
                server.dump()
                self.assertEqual(server.counters(), [counters])


class Contract(unittest.TestCase):
    def test_the_transcript_is_that_of_the_real_server(self):
        """The stored one was made with the real SGLang 0.5.23 on a CPU; contract.py says how."""
        real = json.loads(gzip.decompress((DATA / "contract-0.5.23.json.gz").read_bytes()))
        with StandIn(arguments=contract.STANDARD_FLAGS[1:], environment=contract.STANDARD_ENVIRONMENT) as server:
            self.assertTrue(server.ready(), server.log())
            got = contract.transcript(f"http://127.0.0.1:{server.port}", server.dumps, server.log)
            self.assertEqual(contract.differences(json.loads(json.dumps(got)), real), [])


    def test_two_stages(self):
        """The same list of requests, with --pp-size 2."""
        real = json.loads(gzip.decompress((DATA / "contract-0.5.23-two-stages.json.gz").read_bytes()))
        with StandIn(arguments=[*contract.STANDARD_FLAGS[1:], "--pp-size", "2"], environment=contract.STANDARD_ENVIRONMENT) as server:
            self.assertTrue(server.ready(), server.log())
            got = contract.transcript(f"http://127.0.0.1:{server.port}", server.dumps, server.log)
            got = contract.unordered(json.loads(json.dumps(got)))
            self.assertEqual(contract.differences(got, contract.unordered(real)), [])


class SilentSettings(unittest.TestCase):
    def test_a_port_that_is_not_reuse_has_no_route(self):
        for port in (None, "40001", "-1"):
            with self.subTest(port=port), StandIn(environment={"DUMPER_SERVER_PORT": port}) as server:
                self.assertTrue(server.ready(), server.log())
                self.assertEqual(server.request("POST", "/dumper/get_state"), (404, {"detail": "Not Found"}))

    def test_a_bad_port_word_kills_the_scheduler(self):
        with StandIn(environment={"DUMPER_SERVER_PORT": "reuse "}) as server:
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertIn("Scheduler hit an exception", server.log())
            self.assertIn("invalid literal for int() with base 10: 'reuse '", server.log())
            self.assertIn("Received sigquit from a child process", server.log())

    def test_modes(self):
        for mode, files in (("all", PASS_FILES), ("core", 8), ("ALL", 8), ("off", 0), ("", 8)):
            with self.subTest(mode=mode), StandIn(environment={"DUMPER_NON_INTRUSIVE_MODE": mode}) as server:
                self.assertTrue(server.ready(), server.log())
                server.dump(tokens=1)
                self.assertEqual(server.counters(), [(files, 1)])

    def test_enable_is_not_trimmed(self):
        for word, steps in (("1", 8), ("True", 8), (" 1", 0), ("yes", 0)):
            with self.subTest(word=word), StandIn(environment={"DUMPER_ENABLE": word}) as server:
                self.assertTrue(server.ready(), server.log())
                self.assertEqual(server.counters()[0][1], steps)  # the warm-up of eight tokens

    def test_reset_takes_the_hooks_away(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.request("POST", "/dumper/reset"), (200, [{}]))
            server.dump()
            self.assertEqual(server.counters(), [(0, 3)])

    def test_a_bad_filter_kills_the_server_in_the_next_pass(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.configure(enable=True, exp_name="exp", filter="layer_id=[0-3]"), (200, [{}]))
            with self.assertRaises(OSError):
                server.generate()
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertIn("SyntaxError: invalid syntax", server.log())

    def test_filters(self):
        for text, files in (("True", PASS_FILES), ("False", 0), ("name == 'rids'", 1), ("'mlp' in name", 24),
                            ("layer_id in [0]", 32), ("layer_id is None or layer_id < 1", 55), ("step == 0", 0)):
            with self.subTest(filter=text), StandIn() as server:
                self.assertTrue(server.ready(), server.log())
                server.configure(filter=text)
                server.dump(tokens=1)
                self.assertEqual(server.counters(), [(files, 1)])

    def test_a_health_probe_is_a_pass_unless_switched_off(self):
        for word, steps in (("0", 0), (None, 1)):
            with self.subTest(word=word):
                with StandIn(environment={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": word}) as server:
                    self.assertTrue(server.ready(), server.log())
                    server.configure(enable=True, exp_name="exp")
                    self.assertEqual(server.request("GET", "/health")[0], 200)
                    self.assertEqual(server.counters(), [(steps * PASS_FILES, steps)])


class Lives(unittest.TestCase):
    def test_stages(self):
        with StandIn(environment={"KLDUMP_STANDIN_START_MS": "400"}) as server:
            self.assertTrue(wait_for(lambda: server.status("/model_info") == 200))
            self.assertEqual([server.status(path) for path in ("/ping", "/ready", "/health")], [503] * 3)
            self.assertEqual(server.request("POST", "/dumper/get_state")[0], 200)
            self.assertTrue(server.ready())
            self.assertEqual([server.status(path) for path in ("/ping", "/ready", "/health")], [200] * 3)

    def test_tree_of_four_in_one_session(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            tree = descendants(server.child.pid)
            self.assertEqual(len(tree), 3)
            self.assertEqual({process.session for process in tree}, {server.child.pid})
            self.assertEqual(len([1 for process in tree if "resource_tracker" in process.title]), 1)
            environment = Path(f"/proc/{tree[1].pid}/environ").read_bytes()
            self.assertIn(b"DUMPER_NON_INTRUSIVE_MODE=all", environment)

    def test_killing_main_kills_the_tree_once_loaded(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            server.child.send_signal(signal.SIGKILL)
            server.child.wait(10)
            self.assertTrue(wait_for(lambda: not descendants()))

    def orphans(self, server, kill):
        quits = []
        previous = signal.signal(signal.SIGQUIT, lambda *ignored: quits.append(1))
        try:
            if kill:
                self.assertTrue(wait_for(lambda: len(descendants(server.child.pid)) == 3))
                server.child.send_signal(signal.SIGKILL)
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertEqual(len(descendants()), 3)
            self.assertTrue(wait_for(lambda: quits), "no SIGQUIT from the orphaned scheduler")
            self.assertTrue(wait_for(lambda: len(descendants()) == 2))
            titles = " ".join(process.title for process in descendants())
            self.assertIn("sglang::detokenizer", titles)
            self.assertIn("resource_tracker", titles)
            self.assertIn("BrokenPipeError", server.log())
        finally:
            signal.signal(signal.SIGQUIT, previous)

    def test_killing_main_while_loading_leaves_orphans(self):
        # a load long enough that a busy machine does not miss its first half
        with StandIn(environment={"KLDUMP_STANDIN_LOAD_MS": "4000"}) as server:
            self.orphans(server, kill=True)

    def test_fault_orphans(self):
        with StandIn("orphans", environment={"KLDUMP_STANDIN_LOAD_MS": "800"}) as server:
            self.orphans(server, kill=False)

    def test_term_while_loading_has_its_default_action(self):
        with StandIn(environment={"KLDUMP_STANDIN_LOAD_MS": "800"}) as server:
            self.assertTrue(wait_for(lambda: len(descendants(server.child.pid)) == 3))
            server.child.terminate()
            self.assertEqual(server.child.wait(10), -signal.SIGTERM)

    def test_term_is_graceful_since_0_5_20(self):
        for version, code in ((None, 0), ("0.5.16", -signal.SIGKILL)):
            with self.subTest(version=version), StandIn(version=version) as server:
                self.assertTrue(server.ready(), server.log())
                server.child.terminate()
                self.assertEqual(server.child.wait(10), code)
                self.assertIn("SIGTERM received.", server.log())
                self.assertIn("Gracefully exiting... Remaining number of requests 0.", server.log())
                self.assertTrue(wait_for(lambda: not descendants()))

    def test_term_waits_for_requests(self):
        with StandIn(environment={"KLDUMP_STANDIN_STEP_MS": "50"}) as server:
            self.assertTrue(server.ready(), server.log())
            client = os.fork()
            if client == 0:
                server.generate(rid="slow", tokens=20)
                os._exit(0)
            self.assertTrue(wait_for(lambda: server.log().count("Prefill batch") == 2))
            server.child.terminate()
            self.assertTrue(wait_for(lambda: "remaining_rids=['slow']" in server.log()))
            self.assertEqual(server.status("/ready"), 503)
            self.assertEqual(server.child.wait(10), 0)
            os.waitpid(client, 0)

    def test_a_client_that_goes_away_is_aborted(self):
        with StandIn(environment={"KLDUMP_STANDIN_STEP_MS": "20"}) as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            with self.assertRaises(OSError):
                server.request("POST", "/generate", {"input_ids": [5, 6], "rid": "gone",
                                                     "sampling_params": {"max_new_tokens": 2000}}, timeout=0.1)
            self.assertTrue(wait_for(lambda: server.request("POST", "/flush_cache")[0] == 200))
            self.assertLess(server.counters()[0][1], 200)

    def test_a_killed_scheduler_is_noticed(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            scheduler = next(process for process in descendants() if process.title == "sglang::scheduler")
            os.kill(scheduler.pid, signal.SIGKILL)
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertRegex(server.log(), r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9")
            self.assertTrue(wait_for(lambda: not descendants()))

    def test_unknown_flag(self):
        for flag, version in (("--disable-piecewise-cuda-graph", None), ("--disable-prefill-cuda-graph", "0.5.12")):
            with self.subTest(flag=flag), StandIn(arguments=(flag,), version=version) as server:
                self.assertEqual(server.child.wait(10), 2)
                self.assertTrue(server.log().rstrip().endswith(f"error: unrecognized arguments: {flag}"))

    def test_all_unknown_flags_are_named(self):
        with StandIn(arguments=("--no-such", "word", "--disable-cuda-graph", "--nor-this=1")) as server:
            self.assertEqual(server.child.wait(10), 2)
            self.assertTrue(server.log().rstrip().endswith("sglang serve: error: unrecognized arguments: --no-such word --nor-this=1"))

    def test_version_as_the_guard_asks_it(self):
        code = "import importlib.metadata as m; print(m.version('sglang'))"

        def ask(**more):
            done = subprocess.run([standin.PROGRAM, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, **more}, check=False)
            return done.returncode, done.stdout
        self.assertEqual(ask(), (0, "0.5.23\n"))
        self.assertEqual(ask(KLDUMP_STANDIN_VERSION="0.5.10.post1"), (0, "0.5.10.post1\n"))
        self.assertEqual(ask(KLDUMP_STANDIN_VERSION="0.5.10.post1", KLDUMP_STANDIN_REPORTED="0.6.0"), (0, "0.6.0\n"))
        self.assertEqual(ask(KLDUMP_STANDIN_REPORTED=""), (1, ""))

    def test_flags_of_each_release(self):
        spellings = ["--disable-cuda-graph", "--enable-piecewise-cuda-graph", "--disable-piecewise-cuda-graph",
                     "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph"]
        for version, known in (("0.5.9", "11000"), ("0.5.10.post1", "10100"), ("0.5.12.post1", "10100"), ("0.5.14", "10111"),
                               ("0.5.16", "10111"), ("0.5.18", "10111"), ("0.5.20", "10011"), ("0.5.23", "10011")):
            with self.subTest(version=version):
                text = subprocess.run([standin.PROGRAM, "-m", "sglang.launch_server", "--help"], stdout=subprocess.PIPE, check=True,
                                      text=True, env={**os.environ, "KLDUMP_STANDIN_VERSION": version}).stdout
                self.assertEqual("".join(str(int(f"[{flag}]" in text)) for flag in spellings), known)

    def test_dumper_lines_before_0_5_12(self):
        with StandIn(version="0.5.10.post1", arguments=("--disable-cuda-graph", "--disable-piecewise-cuda-graph")) as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name=None)
            server.generate(tokens=1)
            self.assertIn("\n[Dumper.ZmqRpc] rank=0 server started at tcp://", server.log())
            self.assertIn("\n[Dumper] Choose exp_name=dump_", server.log())

    def test_a_console_script(self):
        """`sglang serve`, found on the path: its first line names the interpreter."""
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            script = server.folder / "sglang"
            script.write_text(f"#!{server.folder}/python3\n")
            script.chmod(0o755)
            done = subprocess.run([script, "serve", "--model-path", "m", "--port", str(server.port)], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 3)
            self.assertIn("address already in use", done.stdout)

    def test_token_ids_beyond_the_vocabulary_kill_the_server(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            with self.assertRaises(OSError):
                server.generate(ids=[5, 1 << 20])
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertIn("IndexError: index out of range in self", server.log())

    def test_compiled_prefill_and_a_dump_without_logprobs(self):
        """As on an H200 with 0.5.16: with logprobs the pass is eager, without the server dies."""
        with StandIn(version="0.5.16", arguments=("--cuda-graph-backend-prefill=tc_piecewise",)) as server:
            self.assertTrue(server.ready(), server.log())
            server.dump(tokens=1, return_logprob=True)
            self.assertEqual(server.counters()[0][0], 128)
            server.configure(enable=True, exp_name="more")
            with self.assertRaises(OSError):
                server.generate(rid="two")
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertIn("torch._dynamo.exc.Unsupported", server.log())

    def test_graph_settings_that_do_not_survive_their_capture(self):
        for flag in ("--cuda-graph-backend-decode=breakable", "--cuda-graph-backend-prefill=full"):
            with self.subTest(flag=flag), StandIn(version="0.5.16", arguments=(flag,)) as server:
                self.assertEqual(server.child.wait(10), -signal.SIGKILL)

    def test_what_does_not_switch_graphs_off(self):
        for flag in ("--enable-deterministic-inference", "--enable-torch-compile"):
            with self.subTest(flag=flag), StandIn(arguments=(flag,)) as server:
                self.assertTrue(server.ready(), server.log())
                server.dump()
                self.assertEqual(server.counters(), [(GRAPH_FILES, 3)])

    def test_dumping_on_from_the_start_with_graphs(self):
        """It boots; each capture has left broken files under the first step, and a line for each."""
        with StandIn(arguments=(), environment={"DUMPER_ENABLE": "1", "DUMPER_EXP_NAME": "exp"}) as server:
            self.assertTrue(server.ready(), server.log())
            broken = [file for file in server.files() if file.path.stat().st_size == 0]
            self.assertEqual({file.step for file in broken}, {0})
            self.assertEqual(server.log().count("during CUDA graph capture"), len(broken))
            self.assertGreater(len(broken), 300)
            self.assertEqual(server.counters()[0][0], len(server.files()))

    def test_graphs_in_the_log_and_in_the_information(self):
        off, on = "Disable prefill CUDA graph because", "Capture target decode CUDA graph begin. backend=full"
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            self.assertIn(off, server.log())
            self.assertNotIn("Capture target", server.log())
            self.assertIn("cuda graph: False", server.log())
            self.assertIn("is deprecated", server.log())
            info = server.request("GET", "/server_info")[1]
            self.assertEqual([info["disable_decode_cuda_graph"], info["disable_prefill_cuda_graph"]], [False, True])  # echoes
            self.assertLess(info["internal_states"][0]["memory_usage"]["graph"]["decode"], 0)  # wrong, and no proof
        with StandIn(arguments=()) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertIn(on, server.log())
            self.assertIn("Capture target prefill CUDA graph begin. backend=breakable", server.log())
            self.assertIn("cuda graph: True", server.log())
            server.dump(tokens=2, return_logprob=True, logprob_start_len=0)
            self.assertEqual(server.counters(), [(GRAPH_FILES, 2)])  # input logprobs change nothing

    def test_a_request_keeps_its_slot(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            server.dump(tokens=4)
            found = {file.name: set() for file in server.files() if file.layer is None and file.name in ("req_pool_indices", "positions")}
            for file in server.files():
                if file.name in found and file.layer is None:
                    found[file.name].add(member(file.path, "data/0"))
            self.assertEqual([len(found["req_pool_indices"]), len(found["positions"])], [1, 4])

    def test_a_flush_fails_while_requests_run(self):
        with StandIn(environment={"KLDUMP_STANDIN_STEP_MS": "50"}) as server:
            self.assertTrue(server.ready(), server.log())
            client = os.fork()
            if client == 0:
                server.generate(rid="slow", tokens=20)
                os._exit(0)
            self.assertTrue(wait_for(lambda: server.log().count("Prefill batch") == 2))
            status, text = server.request("POST", "/flush_cache")
            self.assertEqual((status, text.startswith("Flush cache failed.")), (400, True))
            os.waitpid(client, 0)
            self.assertEqual(server.request("POST", "/flush_cache")[0], 200)

    def test_chunks(self):
        with StandIn(arguments=("--disable-cuda-graph", "--chunked-prefill-size", "16")) as server:
            self.assertTrue(server.ready(), server.log())
            server.dump(ids=range(100, 150), tokens=1)
            rows = [len(integers(file.path)) for file in server.files() if file.name == "input_ids"]
            self.assertEqual(rows, [16, 16, 16, 2])

    def test_scoring_answers_are_whole(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            meta = server.generate(tokens=0, return_logprob=True, logprob_start_len=0)[1]["meta_info"]
            self.assertEqual(meta["finish_reason"], {"type": "length", "length": 0})
            self.assertEqual([meta["prompt_tokens"], len(meta["input_token_logprobs"])], [12, 12])

    def test_interrupt_ends_it_with_zero(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            server.child.send_signal(signal.SIGINT)
            self.assertEqual(server.child.wait(10), 0)
            self.assertTrue(wait_for(lambda: not descendants()))

    def test_a_crash_with_a_living_scheduler_takes_a_minute(self):
        """The wait is shortened here; the scheduler and the port are there as long."""
        for who in ("sglang::detokenizer", "main"):
            with self.subTest(who=who), StandIn(environment={"KLDUMP_STANDIN_COREDUMP_MS": "500"}) as server:
                self.assertTrue(server.ready(), server.log())
                if who == "main":
                    server.child.send_signal(signal.SIGQUIT)
                else:
                    os.kill(next(one.pid for one in descendants() if one.title == who), signal.SIGKILL)
                self.assertTrue(wait_for(lambda: "Waiting 60.0 seconds for CUDA coredumps" in server.log()))
                self.assertEqual(server.status("/model_info"), 200)
                self.assertEqual(server.child.wait(10), -signal.SIGKILL)

    def test_term_to_the_whole_group_is_not_graceful(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            os.killpg(server.child.pid, signal.SIGTERM)
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertIn("crashed with exit code -15", server.log())

    def test_names_of_processes_are_cut(self):
        with StandIn() as server:
            self.assertTrue(server.ready(), server.log())
            scheduler = next(one.pid for one in descendants() if one.title == "sglang::scheduler")
            self.assertEqual(Path(f"/proc/{scheduler}/comm").read_text(), "sglang::schedul\n")
            self.assertIn("sglang.launch_server", standin.look_at(server.child.pid).title)

    def test_keys(self):
        with StandIn(arguments=("--disable-cuda-graph", "--api-key", "one", "--admin-api-key=two")) as server:
            self.assertTrue(server.ready(), server.log())

            def status(path, key, method="POST"):
                return server.request(method, path, {}, headers={"Authorization": f"Bearer {key}"} if key else {})[0]
            self.assertEqual([status("/dumper/get_state", key) for key in (None, "one", "two")], [401, 401, 200])
            self.assertEqual([status("/server_info", key, "GET") for key in (None, "one")], [401, 200])
            self.assertEqual(status("/health", None, "GET"), 200)

    def test_encrypted(self):
        with tempfile.TemporaryDirectory() as folder:
            pair = [f"{folder}/certificate.pem", f"{folder}/key.pem"]
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-out", pair[0], "-keyout", pair[1]], check=True, stderr=subprocess.DEVNULL)
            with StandIn(arguments=("--disable-cuda-graph", "--ssl-certfile", pair[0], "--ssl-keyfile", pair[1])) as server:
                self.assertTrue(server.ready(), server.log())
                self.assertIn("Uvicorn running on https://127.0.0.1:", server.log())
                trust = ssl.create_default_context(cafile=pair[0])
                trust.check_hostname = False
                with urllib.request.urlopen(f"https://127.0.0.1:{server.port}/model_info", context=trust, timeout=10) as answer:
                    self.assertEqual(json.load(answer)["model_type"], "llama")
                with self.assertRaises(OSError):
                    server.request("GET", "/model_info", timeout=5)

    def test_a_taken_port_is_found_after_loading(self):
        with StandIn() as owner:
            self.assertTrue(owner.ready(), owner.log())
            owner.configure(enable=True, exp_name="exp")
            with StandIn(arguments=("--port", str(owner.port))) as second:
                self.assertEqual(second.child.wait(10), 3)
                self.assertIn("address already in use", second.log())
                self.assertIn("fired up and ready to roll", second.log())


class Faults(unittest.TestCase):
    """Each row of the table: fault -> counters of rank 0 after one request of three tokens while dumping."""

    tested = {"orphans"} | {name.split("=")[0] for name in test_numbers.FAULTS}  # in Lives, and there

    def dump(self, faults, counters, **more):
        self.tested.add(re.split("[=]", faults)[0])
        with StandIn(faults, **more) as server:
            self.assertTrue(server.ready(), server.log())
            self.answer = server.dump()[1]
            self.assertEqual(server.counters(), counters, faults)
            self.log = server.log()
            self.info = server.request("GET", "/server_info")[1]
            self.rids = b"".join(file.path.read_bytes() for file in server.files() if file.name == "rids")
            self.sizes = [file.path.stat().st_size for file in server.files()]
            return server.passes()

    def backends(self):
        return tuple(self.info["cuda_graph_config"][phase]["backend"] for phase in ("decode", "prefill"))

    def test_graphs(self):
        self.assertEqual(self.dump("graph-prefill", [(GRAPH_FILES + 2 * PASS_FILES, 3)])[0, 0], GRAPH_FILES)
        self.assertEqual(self.backends(), ("disabled", "breakable"))
        self.dump("graph-prefill=hidden", [(GRAPH_FILES + 2 * PASS_FILES, 3)])
        self.assertEqual(self.backends(), ("disabled", "disabled"))
        self.dump("graph-decode", [(PASS_FILES, 3)])
        self.assertEqual(self.backends(), ("full", "disabled"))

    def test_hooks(self):
        self.assertEqual(self.dump("no-hooks", [(0, 3)]), {})
        self.dump("mode-core", [(24, 3)])
        self.dump("reset-hooks=1", [(0, 2)])
        self.dump("rank-silent", [(3 * PASS_FILES, 3), (0, 3)], arguments=("--disable-cuda-graph", "--tp-size", "2"))
        self.dump("no-rids", [(3 * (PASS_FILES - 1), 3)])

    def test_passes(self):
        self.dump("foreign-request", [(3 * PASS_FILES, 3)])
        self.assertIn("#new-seq: 2", self.log)
        self.dump("health-pass", [(4 * PASS_FILES, 4)])
        self.assertIn(b"HEALTH_CHECK_", self.rids)
        self.dump("extra-decode-pass", [(4 * PASS_FILES, 4)])
        self.dump("cached-probe", [(3 * PASS_FILES, 3)])
        self.assertEqual(self.answer["meta_info"]["cached_tokens"], 6)
        self.dump("slow-dump=1", [(3 * PASS_FILES, 3)])

    def test_failing_writes(self):
        self.dump("failing-writes", [(3 * PASS_FILES, 3)])
        self.assertEqual(len(self.sizes), 3 * PASS_FILES)
        self.assertGreater(self.sizes.count(0), 50)
        self.assertIn("when saving data, skip the tensor", self.log)

    def ends(self, faults, code, text, **more):
        self.tested.add(re.split("[=]", faults)[0])
        with StandIn(faults, **more) as server:
            self.assertEqual(server.child.wait(10), code, server.log())
            self.assertIn(text, server.log())

    def test_starts_that_fail(self):
        self.ends("crash-loading", -signal.SIGKILL, "Received sigquit from a child process")
        self.ends("exit-loading=7", 1, "died during initialization (exit code: 7)")
        self.ends("bad-flag", 2, "unrecognized arguments: --disable-prefill-cuda-graph")
        self.ends("fired-up-then-exit", 3, "fired up and ready to roll")

    def test_starts_that_hang(self):
        self.tested |= {"hang-loading", "hang-starting"}
        with StandIn("hang-loading") as server:
            self.assertFalse(server.ready(0.4))
            self.assertEqual(server.status("/ping"), 0)
        with StandIn("hang-starting") as server:
            self.assertFalse(server.ready(0.4))
            self.assertEqual(server.status("/ready"), 503)

    def test_control_hang(self):
        self.tested.add("control-hang")
        with StandIn("control-hang") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.counters(), [(0, 0)])
            server.configure(enable=True, exp_name="exp")
            with self.assertRaises(OSError):
                server.request("POST", "/dumper/get_state", timeout=0.3)
            self.assertEqual(server.status("/ping"), 200)

    def test_crash_on_dump(self):
        self.tested.add("crash-on-dump")
        with StandIn("crash-on-dump=1") as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            with self.assertRaises(OSError):
                server.generate()
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertEqual(server.passes(), {(0, 0): PASS_FILES})

    def test_ignore_term(self):
        self.tested.add("ignore-term")
        with StandIn("ignore-term") as server:
            self.assertTrue(server.ready(), server.log())
            os.killpg(server.child.pid, signal.SIGTERM)
            time.sleep(0.3)  # nothing happens: there is no event to wait for
            self.assertIsNone(server.child.poll())
            self.assertEqual(len(descendants()), 4)

    def test_fill(self):
        self.tested |= {"fill", "fill-files"}
        with StandIn("fill=2000000,fill-files=500") as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            folder = server.dumps / "exp"
            big = folder / "standin-fill.bin"
            self.assertTrue(wait_for(lambda: big.exists() and big.stat().st_size > 300000))
            self.assertTrue(wait_for(lambda: len(list(folder.glob("standin-fill-*"))) > 50))
            server.configure(enable=False)
            time.sleep(0.05)
            size = big.stat().st_size
            self.assertLess(size, 20000000)
            time.sleep(0.1)
            self.assertEqual(big.stat().st_size, size)

    def stray(self, fault, look):
        self.tested.add(fault)
        with StandIn(fault) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertTrue(wait_for(look(server)), descendants())
            os.killpg(server.child.pid, signal.SIGKILL)
            server.child.wait(10)

    def test_stray_processes(self):
        self.stray("setsid-child", lambda server: lambda: [
            one for one in descendants() if one.title == "standin-helper" and one.session == one.pid])
        self.stray("double-fork", lambda server: lambda: [
            one for one in descendants() if one.title.startswith("[kworker") and one.parent == os.getpid()])
        self.stray("stopped-child", lambda server: lambda: [
            one for one in descendants() if one.title == "standin-stopped" and one.state == "T"])

        self.stray("subreaper", lambda server: lambda: [
            one for one in descendants() if one.title == "standin-adopted" and one.parent != os.getpid()
            and standin.look_at(one.parent).title == "standin-subreaper"])

        # Each link of the chain is dead before a list of processes is read: what is seen are its remains.
        self.stray("fork-storm", lambda server: lambda: len(
            [one for one in descendants(zombies=True) if one.state == "Z" and one.session == server.child.pid]) > 3)

    def test_shared_memory_is_left_after_a_kill(self):
        self.tested.add("shm-left")
        for end, left in ((signal.SIGTERM, False), (signal.SIGKILL, True)):
            with self.subTest(signal=end), StandIn("shm-left") as server:
                self.assertTrue(server.ready(), server.log())
                pid = server.child.pid
                paths = [Path(f"/dev/shm/sglang_loads_{pid:012x}_{pid:08x}.shm"), Path(f"/dev/shm/sem.loky-{pid}-standin")]
                self.assertEqual([path.exists() for path in paths], [True, True])
                server.child.send_signal(end)
                server.child.wait(10)
                self.assertEqual([path.exists() for path in paths], [left, left])
                for path in paths:
                    path.unlink(missing_ok=True)

    def test_a_filter_that_drops_everything(self):
        self.dump("filter-drops-all", [(0, 3)])
        self.dump("filter-drops-all=hidden", [(0, 3)])

    def test_disk_full(self):
        self.dump("disk-full=53", [(3 * PASS_FILES, 3)])
        self.assertEqual(self.sizes[53:].count(0), len(self.sizes) - 54)
        self.assertEqual([size for size in self.sizes[53:] if size], [4096])
        self.assertNotIn(0, self.sizes[:53])
        self.assertEqual(self.log.count("when saving data, skip the tensor"), len(self.sizes) - 53)
        self.assertRegex(self.log, r"inline_container.cc:672\] \. unexpected pos \d+ vs 4096")
        self.assertIn("basic_ios::clear: iostream error", self.log)
        self.assertIn("output_ids", self.answer)

    def test_retraction(self):
        self.dump("retract", [(3 * PASS_FILES, 3)], arguments=("--disable-cuda-graph", "--disable-radix-cache"))
        self.assertEqual(self.answer["meta_info"]["num_retractions"], 1)
        self.assertEqual(self.answer["meta_info"]["completion_tokens"], 3)
        self.assertEqual(self.log.count("Prefill batch"), 4)  # two of the warm-up, two of the request

    def test_null_logprob(self):
        self.tested.add("null-logprob")
        with StandIn("null-logprob") as server:
            self.assertTrue(server.ready(), server.log())
            meta = server.generate(tokens=0, return_logprob=True, logprob_start_len=0)[1]["meta_info"]
            nulls = [i for i, entry in enumerate(meta["input_token_logprobs"]) if entry[0] is None]
            self.assertEqual(nulls, [0, 6])

    def test_answers_that_were_cut_or_aborted(self):
        self.tested |= {"cut-answer", "aborted-answer"}
        with StandIn("cut-answer,aborted-answer") as server:
            self.assertTrue(server.ready(), server.log())
            answer = server.generate(tokens=3, return_logprob=True)[1]
            self.assertEqual((len(answer["output_ids"]), answer["meta_info"]["completion_tokens"]), (2, 3))
            self.assertEqual(answer["meta_info"]["finish_reason"]["type"], "abort")
            answer = server.generate(tokens=3)[1]
            self.assertEqual((len(answer["output_ids"]), answer["meta_info"]["finish_reason"]["type"]), (3, "length"))

    def test_answers_without_logprobs(self):
        self.tested.add("no-logprobs")
        with StandIn("no-logprobs") as server:
            self.assertTrue(server.ready(), server.log())
            answer = server.generate(tokens=3, return_logprob=True)[1]
            self.assertEqual(len(answer["output_ids"]), 3)
            self.assertEqual([key for key in answer["meta_info"] if "logprob" in key], [])

    def test_a_cache_that_keeps_nothing(self):
        self.tested.add("evicted-prefix")
        for faults, found in (("", [0, 11]), ("evicted-prefix", [0, 0])):
            with StandIn(faults) as server:
                self.assertTrue(server.ready(), server.log())
                self.assertEqual([server.generate(tokens=2)[1]["meta_info"]["cached_tokens"] for _ in range(2)], found)

    def test_tokens_of_prefills_are_counted(self):
        """Of everybody, without what the cache gave and without health probes; the stranger of the fault has 3."""
        self.tested.add("stranger")
        with StandIn("stranger=2") as server:
            def counted():
                return server.request("GET", "/v1/loads")[1]["loads"][0]["total_prefill_uncached_tokens"]
            self.assertTrue(server.ready(), server.log())
            before, found = counted(), []
            for ids in ([20, 21, 22, 23, 24], [20, 21, 22, 23, 25], [30, 31]):
                answer = server.generate(ids=ids, tokens=2, return_logprob=True)[1]
                found.append(counted() - before)
                before += found[-1]
                self.assertEqual(answer["meta_info"]["cached_tokens"], 4 if ids[-1] == 25 else 0)
            self.assertEqual(found, [5, 1 + 3, 2])
            server.request("GET", "/health_generate")
            server.request("POST", "/flush_cache")
            self.assertEqual(counted(), before)
        with StandIn("", environment={"KLDUMP_STANDIN_VERSION": "0.5.16"}) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertNotIn("total_prefill_uncached_tokens", server.request("GET", "/v1/loads")[1]["loads"][0])

    def test_other_weights(self):
        with StandIn("") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.request("GET", "/model_info")[1]["weight_version"], "default")
            self.assertEqual(server.request("POST", "/update_weight_version", {"new_version": "step-7"})[0], 200)
            self.assertEqual(server.request("GET", "/model_info")[1]["weight_version"], "step-7")
            start = server.request("GET", "/server_info")[1]["startup_time"]
            self.assertEqual(server.request("GET", "/server_info")[1]["startup_time"], start)
        with StandIn("") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertNotEqual(server.request("GET", "/server_info")[1]["startup_time"], start)

    def test_a_rank_that_disappears(self):
        self.tested.add("rank-gone")
        with StandIn("rank-gone=1", arguments=("--disable-cuda-graph", "--tp-size", "2"),
                     environment={"KLDUMP_STANDIN_COREDUMP_MS": "50"}) as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            with self.assertRaises(OSError):
                server.generate()
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertRegex(server.log(), r"Subprocess scheduler_1 \(pid=\d+\) crashed with exit code -9")
            self.assertIn("Waiting 60.0 seconds for CUDA coredumps", server.log())
            self.assertEqual(server.passes()[0, 0], PASS_FILES)

    def test_watchdog(self):
        self.tested.add("watchdog-on-dump")
        with StandIn("watchdog-on-dump=1") as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            with self.assertRaises(OSError):
                server.generate()
            self.assertEqual(server.child.wait(10), -signal.SIGKILL)
            self.assertIn("watchdog timeout", server.log())

    def test_control_that_does_nothing(self):
        self.tested |= {"rank-deaf", "null-answer", "no-disable"}

        def enabled(server):
            return [one["config"]["enable"] for one in server.request("POST", "/dumper/get_state")[1]]
        two = ("--disable-cuda-graph", "--tp-size", "2")
        with StandIn("rank-deaf", arguments=two) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.configure(enable=True, exp_name="exp"), (200, [{}, {}]))
            self.assertEqual(enabled(server), [True, False])
        with StandIn("null-answer", arguments=two) as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.configure(enable=True, exp_name="exp"), (200, [None, None]))
            self.assertEqual(enabled(server), [False, False])
        with StandIn("no-disable") as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            self.assertEqual(server.configure(enable=False), (200, [{}]))
            self.assertEqual(enabled(server), [True])

    def test_control_that_waits(self):
        self.tested |= {"stall-on-dump", "no-address", "busy-pass"}
        with StandIn("stall-on-dump=0") as server:
            self.assertTrue(server.ready(), server.log())
            server.configure(enable=True, exp_name="exp")
            for path in ("/generate", "/dumper/get_state"):
                with self.assertRaises(OSError):
                    server.request("POST", path, {"input_ids": [5], "rid": "own"}, timeout=0.3)
            self.assertEqual(server.status("/ping"), 200)
        with StandIn("no-address") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertIn("tcp://None:", server.log())
            with self.assertRaises(OSError):
                server.request("POST", "/dumper/get_state", timeout=0.3)
        with StandIn("busy-pass=200") as server:
            self.assertTrue(server.ready(), server.log())
            begin = time.monotonic()
            server.dump(tokens=2)
            self.assertGreater(time.monotonic() - begin, 0.4)

    def raw(self, server, path="/server_info", limit=1 << 20, last=None):
        """What comes until the connection is closed, LIMIT is read, or nothing has come for a while after LAST."""
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
            got = b""
            try:
                while len(got) < limit and (more := connection.recv(1 << 16)):
                    got += more
                    if last is not None and last in got:
                        connection.settimeout(0.5)
            except TimeoutError:
                return got, "waits"
            return got, "more" if len(got) >= limit else "closed"

    def test_answers_that_no_client_can_use(self):
        self.tested.add("bad-answer")
        wanted = {"text": (b"200 OK", "closed"), "empty": (b"content-length: 0", "closed"), "binary": (b"\x00", "closed"),
                  "deep": (b"[[[[", "closed"), "huge": (b"content-length: 50331", "more"), "status": (b" 500 ", "closed"),
                  "redirect": (b"location: http://h/server_info", "closed"), "slow": (b"\r\n\r\n{", "waits"),
                  "endless": (b"transfer-encoding: chunked", "more"), "cut": (b"version", "closed"), "close": (b"", "closed"),
                  "error": (b"Out of memory", "closed")}
        for kind, (part, end) in wanted.items():
            with self.subTest(kind=kind), StandIn(f"bad-answer={kind}:/server_info") as server:
                self.assertTrue(server.ready(), server.log())
                got, how = self.raw(server, last=part if end == "waits" else None)
                self.assertEqual(how, end)
                self.assertIn(part, got)
                self.assertEqual(server.status("/model_info"), 200)
        with StandIn("bad-answer=error:/generate:logprobs") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.generate(tokens=1, return_logprob=True), (200, {"error": {"message": "Out of memory"}}))
            self.assertEqual(len(server.generate(tokens=1)[1]["output_ids"]), 1)
        with StandIn("bad-answer=text:/dumper/get_state:dumping") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.counters(), [(0, 0)])
            server.configure(enable=True, exp_name="exp")
            self.assertIn("It works!", server.request("POST", "/dumper/get_state")[1])
            server.configure(enable=False)
            self.assertEqual(server.counters(), [(0, 0)])

    def test_loads_are_empty_at_first(self):
        self.tested.add("late-loads")
        with StandIn("late-loads=2") as server:
            self.assertTrue(server.ready(), server.log())
            found = [len(server.request("GET", "/v1/loads")[1]["loads"]) for _ in range(3)]
            self.assertEqual(found, [0, 0, 1])

    def test_output(self):
        self.tested |= {"log-flood", "binary-output"}
        with StandIn("log-flood=3000000,binary-output") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertTrue(wait_for(lambda: "the flood has ended" in server.log()))
            raw = (server.folder / "log").read_bytes()
            self.assertGreater(raw.count(b"x"), 2900000)
            self.assertEqual([byte for byte in range(256) if bytes([byte]) not in raw], [])

    def test_titles_that_say_nothing(self):
        self.tested.add("renamed")
        with StandIn("renamed") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual([one.title for one in descendants() if "sglang::" in one.title], [])

    def test_an_orphan_that_quits_late(self):
        self.tested.add("late-quit")
        quits = []
        previous = signal.signal(signal.SIGQUIT, lambda *ignored: quits.append(time.monotonic()))
        try:
            with StandIn("orphans,late-quit=700", environment={"KLDUMP_STANDIN_LOAD_MS": "400"}) as server:
                server.child.wait(10)
                self.assertTrue(wait_for(lambda: "BrokenPipeError" in server.log()))
                broken = time.monotonic()
                self.assertTrue(wait_for(lambda: quits))
                self.assertGreater(quits[0] - broken, 0.5)
        finally:
            signal.signal(signal.SIGQUIT, previous)

    def test_a_drain_that_never_ends(self):
        self.tested.add("drain-stuck")
        with StandIn("drain-stuck") as server:
            self.assertTrue(server.ready(), server.log())
            self.assertEqual(server.generate(ids=[])[0], 400)
            server.child.terminate()
            self.assertTrue(wait_for(lambda: server.log().count("Remaining number of requests 1") > 3))
            self.assertIsNone(server.child.poll())

    def test_unknown_fault_is_an_error(self):
        with StandIn("no-such-fault") as server:
            self.assertEqual(server.child.wait(10), 2)

    def test_zz_every_row_was_tested(self):
        self.assertEqual(faults_in_table() - self.tested, set())


if __name__ == "__main__":
    standin.become_subreaper()
    result = unittest.main(verbosity=1, exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"[  PASSED  ] {result.testsRun - bad} test(s).\n" + (f"[  FAILED  ] {bad} test(s).\n" if bad else ""), end="")
    sys.exit(1 if bad else 0)
