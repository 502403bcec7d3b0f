# fish completion of kldumpctl: commands and options are asked of the program itself, so they are always its own.

function __kldumpctl_commands
    kldumpctl help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\)  *\(.*\)/\1\t\2/p'
end

function __kldumpctl_command
    for word in (commandline -opc)[2..]
        if not string match -q -- '-*' $word
            echo $word
            return 0
        end
    end
    return 1
end

function __kldumpctl_is
    contains -- (__kldumpctl_command; or echo none) $argv
end

function __kldumpctl_options
    kldumpctl help (__kldumpctl_command) 2>/dev/null |
        sed -n 's/^  \(--[a-z][a-z-]*\)[^ ]*\( [^ ][^ ]*\)*  *\(.*\)/\1\t\3/p'
    printf '%s\t%s\n' --help 'explain the command'
end

# Names of runs: all, or with an argument those that have not ended.
function __kldumpctl_runs
    if test (count $argv) -gt 0
        kldumpctl list --json 2>/dev/null | sed '/"state":"ended"/d'
    else
        kldumpctl list --json 2>/dev/null
    end | sed -n 's/^{"schema":"[^"]*","name":"\([A-Za-z0-9._-]*\)".*/\1/p'
end

function __kldumpctl_states
    kldumpctl help wait 2>/dev/null | sed -n 's/^States: //p' | tr -d ,. | string split ' '
end

function __kldumpctl_after
    set -l words (commandline -opc)
    contains -- $words[-1] $argv
end

function __kldumpctl_own
    not contains -- -- (commandline -opc)
end

# What follows -- is a command of its own.
function __kldumpctl_client
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    complete -C (string join ' ' -- $words[(math $at + 1)..])
end

complete -c kldumpctl -f
complete -c kldumpctl -n 'not __kldumpctl_command >/dev/null' -a '(__kldumpctl_commands)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_command >/dev/null; and string match -q -- "-*" (commandline -ct)' -a '(__kldumpctl_options)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_is help' -a '(__kldumpctl_commands)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_is dump pause stop wait capture kl; and not __kldumpctl_after --for' -a '(__kldumpctl_runs live)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_is status logs events ab state-diff' -a '(__kldumpctl_runs)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_is wait; and __kldumpctl_after --for' -a '(__kldumpctl_states)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_is check diff' -a '(__fish_complete_directories)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_after --dir --history' -a '(__fish_complete_directories)'
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_after --config --textfile --npy --html --kl --prompts --thresholds --out' -F
complete -c kldumpctl -n '__kldumpctl_own; and __kldumpctl_is show ab state-diff' -F
complete -c kldumpctl -n 'not __kldumpctl_own' -a '(__kldumpctl_client)'
