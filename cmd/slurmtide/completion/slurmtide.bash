# bash completion of slurmtide
_slurmtide() {
	local line word
	COMPREPLY=()
	while IFS= read -r line; do
		if [ "$line" = :files ]; then
			compopt -o default
			continue
		fi
		word=${line%%$'\t'*}
		# bash takes --flag=value for three words.
		case $word in --*=*) word=${word#*=} ;; esac
		COMPREPLY+=("$word")
	done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _slurmtide slurmtide
