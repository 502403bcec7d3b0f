#!/usr/bin/python3
"""Sends requests to an SGLang server, each with a request id of its own; the client that tests dump around.

  send.py [URL] [--rid ID] [--prompt TOKENS] [--new TOKENS] [--requests N] [--key KEY] [--sleep SECONDS]

URL is left out where kldumpctl dump gives it as KLDUMP_URL. Exit status 1 when the server goes away.
"""
import argparse
import http.client
import json
import os
import random
import sys
import time
import urllib.request


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=os.environ.get("KLDUMP_URL"))
    parser.add_argument("--rid", default="own")
    parser.add_argument("--prompt", type=int, default=12)
    parser.add_argument("--new", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--key")
    parser.add_argument("--sleep", type=float, default=0)
    options = parser.parse_args()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {options.key}"} if options.key else {})}
    # Other words for each experiment: a prompt that the server has seen would come from its radix cache.
    words = random.Random(f"{options.rid} {options.prompt} {os.environ.get('KLDUMP_EXP')}")
    for number in range(options.requests):
        ids = [words.randrange(3, 500) for _ in range(options.prompt)]
        body = {"input_ids": ids, "rid": f"{options.rid}-{number}",
                "sampling_params": {"max_new_tokens": options.new, "temperature": 0, "ignore_eos": True}}
        request = urllib.request.Request(f"{options.url}/generate", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                print(json.load(answer)["output_ids"], flush=True)
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(f"request {number}: {error}")
            sys.exit(1)
    time.sleep(options.sleep)


if __name__ == "__main__":
    main()
