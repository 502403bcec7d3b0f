#!/usr/bin/env python3
"""A client to dump around: sends prompts of random token ids to an SGLang server and prints what comes back.

  client.py http://127.0.0.1:30000 [--requests N] [--prompt TOKENS] [--new TOKENS] [--seed N]

Token ids, not text, so it also works with --skip-tokenizer-init; temperature 0 and ignore_eos, so that the number of
decode passes is known.  Exit status 1 when the server goes away.
"""
import argparse
import http.client
import json
import random
import sys
import urllib.request


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=24, metavar="TOKENS")
    parser.add_argument("--new", type=int, default=4, metavar="TOKENS")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    numbers = random.Random(options.seed)
    for number in range(1, options.requests + 1):
        body = {"input_ids": [numbers.randrange(3, 500) for _ in range(options.prompt)],
                "sampling_params": {"max_new_tokens": options.new, "temperature": 0, "ignore_eos": True}}
        request = urllib.request.Request(f"{options.url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                print(f"request {number}: {options.prompt} tokens in, out: {json.load(answer)['output_ids']}", flush=True)
        except (OSError, http.client.HTTPException) as error:
            print(f"request {number}: the server is gone ({error})")
            sys.exit(1)


if __name__ == "__main__":
    main()
