#compdef slurmtide
# zsh completion of slurmtide
_slurmtide() {
	local line word
	local -a found
	local files=
	for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		case $line in
		'') ;;
		:files) files=1 ;;
		*$'\t'*) word=${line%%$'\t'*} found+=("${word//:/\\:}:${line#*$'\t'}") ;;
		*) found+=("${line//:/\\:}") ;;
		esac
	done
	(($#found)) && _describe slurmtide found
	[[ -n $files ]] && { compset -P '--*='; _files }
	(($#found)) || [[ -n $files ]]
}
if [ "$funcstack[1]" = _slurmtide ]; then
	_slurmtide "$@"
else
	compdef _slurmtide slurmtide
fi
