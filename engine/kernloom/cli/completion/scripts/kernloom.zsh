#compdef kernloom
# Completion of kernloom for zsh: source <(kernloom completion zsh)

_kernloom() {
    local program=${(Q)words[1]} line kind word about
    local -a given=("${(@Q)words}") lines whole more
    given[CURRENT]=${(Q)IPREFIX}${(Q)PREFIX}
    program=${program/#\~\//$HOME/}
    (( $+commands[$program] )) || [[ -x $program ]] || program=kernloom
    lines=("${(@f)$($program completion zsh --words $((CURRENT - 1)) -- "${given[@]}" 2>/dev/null </dev/null)}")
    for line in $lines; do
        kind=${line%% *}
        word=${${line#* }%%$'\t'*}
        about=
        [[ $line == *$'\t'* ]] && about=${line#*$'\t'}
        case $kind in
            word) whole+=("${word//:/\\:}${about:+:$about}") ;;
            more) more+=("${word//:/\\:}${about:+:$about}") ;;
            files) compset -p ${#word} && _files ;;
            yaml) compset -p ${#word} && _files -g '*.(yaml|yml)' ;;
        esac
    done
    if (( $#whole || $#more )); then
        _describe -V -t kernloom kernloom whole -- more -S ''
    fi
}

if [[ ${funcstack[1]} == _kernloom ]]; then
    _kernloom "$@"
else
    if (( ! $+functions[compdef] )); then
        autoload -Uz compinit
        compinit -i -D
    fi
    compdef _kernloom kernloom
fi
