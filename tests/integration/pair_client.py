#!/usr/bin/python3
"""The two requests of the method, as clients of `kldumpctl dump`.

  pair_client.py generate FILE    12 tokens, 6 more are generated; all their ids go into FILE
  pair_client.py score FILE       flushes the prefix cache, then one request with these ids and their logprobs; --keep: without the flush
                                  and without logprobs, which a server computes anew
"""
import json
import os
import sys
import urllib.request

PROMPT, NEW = list(range(20, 32)), 6


def post(path, body):
    url = os.environ["KLDUMP_URL"] + path
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def generate(ids, rid, new, **more):
    parameters = {"max_new_tokens": new, "temperature": 0, "ignore_eos": True}
    return json.loads(post("/generate", {"input_ids": ids, "rid": rid, "sampling_params": parameters, **more}))


def main():
    what, path = sys.argv[1:3]
    if what == "generate":
        ids = PROMPT + generate(PROMPT, "dec", NEW)["output_ids"]
        with open(path, "w", encoding="ascii") as file:
            json.dump(ids, file)
    else:
        keep = "--keep" in sys.argv
        if not keep:
            post("/flush_cache", {})
        with open(path, encoding="ascii") as file:
            generate(json.load(file), "pre", 1, **({} if keep else {"return_logprob": True, "logprob_start_len": 0}))


main()
