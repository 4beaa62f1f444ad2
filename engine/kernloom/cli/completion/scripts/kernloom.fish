# Completion of kernloom for fish: kernloom completion fish | source

function __kernloom_complete
    set -l typed (commandline -ct | string trim --left --chars '"\'')
    set -l given (commandline -opc) "$typed"
    set -l program (string replace --regex '^~/' "$HOME/" -- $given[1])
    type -q -- $program; or set program kernloom
    type -q -- $program; or return
    set -l index (math (count $given) - 1)
    for line in ($program completion fish --words $index -- $given 2>/dev/null </dev/null)
        set -l parts (string split --max 1 ' ' -- $line)
        switch $parts[1]
            case word more
                echo $parts[2]
            case files yaml
                set -l before $parts[2]
                set -l file (string sub --start (math (string length -- "$before") + 1) -- "$typed")
                for path in (__fish_complete_path "$file")
                    if test $parts[1] = files; or string match --quiet --regex '(/|\.ya?ml)(\t|$)' -- $path
                        echo $before$path
                    end
                end
        end
    end
end

complete --command kernloom --erase
complete --command kernloom --no-files --keep-order --arguments '(__kernloom_complete)'
