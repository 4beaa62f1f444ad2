# Completion of kernloom for bash: source <(kernloom completion bash)

_kernloom() {
    local -a words=() starts=()
    local rest=$COMP_LINE word index=0 i

    # Bash has split the words at = and : as well, so join what no space separates.
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $rest != [[:space:]]* ]]; then
            words[-1]+=$word
        elif [[ -z $word ]]; then
            words+=("")
            starts+=("$COMP_POINT")
        else
            rest=${rest#"${rest%%[![:space:]]*}"}
            starts+=("$((${#COMP_LINE} - ${#rest}))")
            words+=("$word")
        fi
        rest=${rest#"$word"}
        ((i == COMP_CWORD)) && index=$((${#words[@]} - 1))
    done
    words[index]=${words[index]:0:COMP_POINT-starts[index]}

    local program=${words[0]/#~\//$HOME/}
    program=$(type -P -- "$program" || type -P kernloom) || return 0

    # Bash replaces only what follows the last of these, unless the word is in quotes.
    local typed=${words[index]} breaks=${COMP_WORDBREAKS//[[:space:]\"\']/} cut=
    if [[ $typed != [\"\']* && -n $breaks ]]; then
        cut=${typed%"${typed##*["$breaks"]}"}
    fi

    local line kind file last=
    COMPREPLY=()
    while IFS= read -r line; do
        kind=${line%% *}
        word=${line#* }
        word=${word%%$'\t'*}
        case $kind in
            word | more)
                COMPREPLY+=("${word#"$cut"}")
                last=$kind
                ;;
            files | yaml)
                compopt -o filenames 2>/dev/null
                while IFS= read -r file; do
                    if [[ $kind == files || -d $file || $file == *.yaml || $file == *.yml ]]; then
                        file=$word$file
                        COMPREPLY+=("${file#"$cut"}")
                    fi
                done < <(compgen -f -- "${typed#"$word"}")
                last=$kind
                ;;
        esac
    done < <("$program" completion bash --words "$index" -- "${words[@]}" 2>/dev/null </dev/null)
    if [[ ${#COMPREPLY[@]} == 1 && $last == more ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

# Bash before 4.4 sorts, whatever it is told.
complete -o nosort -F _kernloom kernloom 2>/dev/null || complete -F _kernloom kernloom
