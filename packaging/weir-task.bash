# Completes weir-task in bash by the flags of weir-worker and of weir-ps. Their completions are files
# in the same folder.
_weir_task()
{
    local offered
    _weir_worker
    offered=("${COMPREPLY[@]}")
    _weir_ps
    mapfile -t COMPREPLY < <(printf '%s\n' "${offered[@]}" "${COMPREPLY[@]}" | sed '/^$/d' | sort -u)
}
for name in weir-worker weir-ps; do
    # shellcheck source=/dev/null
    . "${BASH_SOURCE[0]%/*}/$name"
done
unset name
complete -F _weir_task weir-task
