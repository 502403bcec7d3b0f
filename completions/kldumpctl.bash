# bash completion of kldumpctl: commands and options are asked of the program itself, so they are always its own.

_kldumpctl_commands() {
    kldumpctl help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
}

_kldumpctl_options() {
    kldumpctl help "$1" 2>/dev/null | sed -n 's/^  \(--[a-z][a-z-]*\).*/\1/p'
    echo --help
}

# Names of runs: all, or with an argument those that have not ended.
_kldumpctl_runs() {
    kldumpctl list --json 2>/dev/null | sed "${1:+/\"state\":\"ended\"/d}" | sed -n 's/^{"schema":"[^"]*","name":"\([A-Za-z0-9._-]*\)".*/\1/p'
}

_kldumpctl_states() {
    kldumpctl help wait 2>/dev/null | sed -n 's/^States: //p' | tr -d ,.
}

_kldumpctl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            # what follows is a command of its own
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -o default -- "$word")
            fi
            return
        fi
        [[ -z $command && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}
    done
    if [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_commands) --help --version" -- "$word")
        return
    fi
    case $before in
    --dir | --history)
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
        return
        ;;
    --config | --textfile | --html | --kl | --prompts | --thresholds | --out)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --for)
        if [[ $command == wait ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_states)" -- "$word")
            return
        fi
        ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_options "$command")" -- "$word")
        return
    fi
    case $command in
    help) mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_commands)" -- "$word") ;;
    check | diff) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    ab | state-diff) mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_runs)" -f -- "$word") ;;
    show) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    dump | pause | stop | wait | capture | kl) mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_runs live)" -- "$word") ;;
    status | logs | events) mapfile -t COMPREPLY < <(compgen -W "$(_kldumpctl_runs)" -- "$word") ;;
    esac
}

complete -F _kldumpctl kldumpctl
